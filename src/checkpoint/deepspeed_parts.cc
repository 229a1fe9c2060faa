// Small parts that every stage has: a tensor's place, moments, hyper-parameters, the loss scaler.
// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/dtype.h"
#include "base/error.h"
#include "checkpoint/deepspeed_build.h"

namespace zero::checkpoint {
namespace {

// The order in which libzero keeps the states of its optimizers.
constexpr const char* kKnownStates[] = {"exp_avg", "exp_avg_sq", "momentum_buffer", "sum"};

void set_number(const DeepSpeedArchive& archive, PickleRef dict, const char* key, double* value) {
  const PickleRef node = archive.document().find(dict, key);
  if (node == kNoPickle || archive.document().is(node, PickleKind::kNone)) return;
  *value = read_deepspeed_number(archive, node, std::string(key) + " of a parameter group");
}

} // namespace

DeepSpeedPiece deepspeed_piece(const DeepSpeedBuild& build, uint32_t archive, PickleRef tensor,
                               const std::string& what, uint64_t begin, uint64_t param_begin,
                               uint64_t count) {
  const DeepSpeedArchive& file = *build.archives[archive];
  DeepSpeedPiece piece;
  piece.archive = archive;
  piece.begin = param_begin;
  piece.count = count;
  const uint64_t start = file.locate(tensor, "\"" + what + "\"");
  const TorchTensor& shape = file.document().tensor(tensor);
  piece.dtype = file.document().storage(shape).dtype;
  const uint64_t elements = shape.elements();
  if (begin > elements || count > elements - begin) {
    fail(ZERO_ERR_FILE_FORMAT,
         "file \"%s\": \"%s\" has %llu elements, expected at least %llu from %llu on",
         file.path().c_str(), what.c_str(), static_cast<unsigned long long>(elements),
         static_cast<unsigned long long>(count), static_cast<unsigned long long>(begin));
  }
  piece.offset = start + begin * dtype_bytes(piece.dtype);
  return piece;
}

double read_deepspeed_number(const DeepSpeedArchive& archive, PickleRef node,
                             const std::string& what) {
  const PickleDocument& document = archive.document();
  if (document.is(node, PickleKind::kInteger) || document.is(node, PickleKind::kBool)) {
    return static_cast<double>(document.integer(node));
  }
  if (document.is(node, PickleKind::kNumber)) return document.number(node);
  if (document.is(node, PickleKind::kTensor) && document.tensor(node).elements() == 1) {
    const uint64_t start = archive.locate(node, what);
    const zero_dtype dtype = document.storage(document.tensor(node)).dtype;
    unsigned char bytes[8] = {};
    archive.read(start, bytes, dtype_bytes(dtype));
    if (dtype == ZERO_DTYPE_FP32) {
      float value;
      std::memcpy(&value, bytes, sizeof(value));
      return static_cast<double>(value);
    }
    if (dtype == ZERO_DTYPE_FP64) {
      double value;
      std::memcpy(&value, bytes, sizeof(value));
      return value;
    }
    if (dtype == ZERO_DTYPE_INT64) {
      int64_t value;
      std::memcpy(&value, bytes, sizeof(value));
      return static_cast<double>(value);
    }
    if (dtype == ZERO_DTYPE_INT32) {
      int32_t value;
      std::memcpy(&value, bytes, sizeof(value));
      return value;
    }
  }
  fail(ZERO_ERR_FILE_FORMAT, "file \"%s\": %s is no number", archive.path().c_str(), what.c_str());
}

DeepSpeedMoments read_deepspeed_moments(DeepSpeedBuild* build, const DeepSpeedArchive& archive,
                                        PickleRef dict) {
  const PickleDocument& document = archive.document();
  DeepSpeedMoments moments;
  if (!document.is(dict, PickleKind::kDict)) return moments; // never stepped
  const PickleRef step = document.find(dict, "step");
  if (step != kNoPickle) {
    const double value = read_deepspeed_number(archive, step, "the optimizer's step");
    if (!(value >= 0 && value < 9e15) || value != std::floor(value)) {
      fail(ZERO_ERR_FILE_FORMAT, "file \"%s\": the optimizer's step is %g, expected a count",
           archive.path().c_str(), value);
    }
    moments.step = static_cast<int64_t>(value);
  }
  std::vector<std::string>& names = build->state.state_names;
  if (names.empty()) {
    for (const char* name : kKnownStates) {
      if (document.is(document.find(dict, name), PickleKind::kTensor)) names.emplace_back(name);
    }
  }
  const std::vector<PickleRef>& items = document.items(dict);
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    const bool is_state = document.is(items[i + 1], PickleKind::kTensor) &&
                          document.is(items[i], PickleKind::kText) &&
                          document.text(items[i]) != "step";
    if (is_state && std::find(names.begin(), names.end(), document.text(items[i])) == names.end()) {
      fail(ZERO_ERR_UNSUPPORTED,
           "file \"%s\": the optimizer keeps a state \"%s\", expected exp_avg, exp_avg_sq, "
           "momentum_buffer or sum, the same for all parameters",
           archive.path().c_str(), document.text(items[i]).c_str());
    }
  }
  for (const std::string& name : names) {
    const PickleRef tensor = document.find(dict, name);
    if (!document.is(tensor, PickleKind::kTensor)) {
      fail(ZERO_ERR_FILE_FORMAT, "file \"%s\": a state \"%s\" of the optimizer is missing",
           archive.path().c_str(), name.c_str());
    }
    moments.tensors.push_back(tensor);
  }
  return moments;
}

void build_deepspeed_groups(DeepSpeedBuild* build, const DeepSpeedArchive& archive,
                            PickleRef param_groups) {
  const PickleDocument& document = archive.document();
  std::vector<DeepSpeedGroup>& groups = build->state.groups;
  if (document.is(param_groups, PickleKind::kList)) {
    for (const PickleRef dict : document.items(param_groups)) {
      DeepSpeedGroup group;
      set_number(archive, dict, "lr", &group.lr);
      set_number(archive, dict, "weight_decay", &group.weight_decay);
      set_number(archive, dict, "eps", &group.epsilon);
      set_number(archive, dict, "momentum", &group.momentum);
      group.has_momentum = document.find(dict, "momentum") != kNoPickle;
      const PickleRef betas = document.find(dict, "betas");
      const bool pair =
          (document.is(betas, PickleKind::kTuple) || document.is(betas, PickleKind::kList)) &&
          document.items(betas).size() == 2;
      if (pair) {
        group.has_betas = true;
        group.beta1 = read_deepspeed_number(archive, document.items(betas)[0], "beta1");
        group.beta2 = read_deepspeed_number(archive, document.items(betas)[1], "beta2");
      }
      groups.push_back(group);
    }
  }
  if (groups.size() >= build->members.size() && !groups.empty()) return;
  fail(ZERO_ERR_FILE_FORMAT, "file \"%s\": its optimizer has %zu groups, the model %zu",
       archive.path().c_str(), groups.size(), build->members.size());
}

void build_deepspeed_scaler(DeepSpeedBuild* build, const DeepSpeedArchive& archive,
                            PickleRef optimizer) {
  const PickleDocument& document = archive.document();
  const PickleRef object = document.find(optimizer, "loss_scaler");
  if (!document.is(object, PickleKind::kObject)) return;
  DeepSpeedScaler& scaler = build->state.scaler;
  set_number(archive, object, "cur_scale", &scaler.scale);
  const auto take = [&](const char* key, int64_t* value) {
    const PickleRef node = document.find(object, key);
    if (document.is(node, PickleKind::kInteger)) *value = document.integer(node);
  };
  take("cur_iter", &scaler.iteration);
  take("last_overflow_iter", &scaler.last_overflow);
  take("cur_hysteresis", &scaler.hysteresis);
  const PickleRef dynamic = document.find(object, "dynamic");
  scaler.dynamic = document.is(dynamic, PickleKind::kBool)
                       ? document.integer(dynamic) != 0
                       : document.class_of(object).find("Dynamic") != std::string::npos;
  if (std::isfinite(scaler.scale) && scaler.scale > 0) return;
  fail(ZERO_ERR_FILE_FORMAT, "file \"%s\": the loss scale is %g, expected a positive number",
       archive.path().c_str(), scaler.scale);
}

} // namespace zero::checkpoint
