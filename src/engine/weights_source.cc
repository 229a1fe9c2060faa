// SPDX-License-Identifier: BSD-3-Clause
#include "engine/weights_source.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

#include "base/dtype.h"
#include "checkpoint/element_cast.h"
#include "engine/master_weights.h"
#include "plan/safetensors_files.h"

namespace zero::engine {
namespace {

constexpr uint64_t kPieceElements = uint64_t{1} << 20;

bool is_float(zero_dtype dtype) {
  return dtype == ZERO_DTYPE_FP32 || dtype == ZERO_DTYPE_FP64 || is_16_bit_float(dtype);
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t extent : shape) {
    text += (text.size() == 1 ? "" : ", ") + std::to_string(extent);
  }
  return text + "]";
}

// "2 missing: a, b"
void add_list(std::string* sentence, const std::vector<std::string>& names, const char* what) {
  if (names.empty()) return;
  *sentence += format("%s%zu %s: ", sentence->empty() ? "" : "; ", names.size(), what);
  for (size_t i = 0; i < names.size(); ++i) *sentence += (i == 0 ? "" : ", ") + names[i];
}

// What the optimizer knows of this rank's part of a parameter starts anew.
void clear_states(Context& context, zero_param_id root, zero_span span) {
  if (span.count == 0) return;
  const plan::Plan& plan = *context.plan;
  const plan::ParameterPlace& place = plan.places[static_cast<size_t>(root)];
  const plan::Bucket& bucket = context.bucket(place.bucket);
  uint64_t home = bucket.class_offset + place.offset + span.offset;
  if (plan.placement.optimizer_sharded) {
    home = bucket.shard_offset + place.offset + span.offset -
           static_cast<uint64_t>(context.rank()) * bucket.shard_elements;
  }
  const uint64_t size =
      dtype_bytes(plan.classes[static_cast<size_t>(bucket.parameter_class)].state_dtype);
  for (std::byte* state : context.storage->of_bucket(place.bucket).states) {
    std::memset(state + home * size, 0, span.count * size);
  }
}

void convert(Context& context, const void* from, zero_dtype from_dtype, void* to,
             zero_dtype to_dtype, uint64_t count) {
  if (from_dtype == to_dtype) {
    std::memcpy(to, from, count * dtype_bytes(to_dtype));
  } else if (from_dtype != ZERO_DTYPE_FP64 && to_dtype != ZERO_DTYPE_FP64) {
    context.kernels->cast(from, from_dtype, to, to_dtype, count);
  } else {
    checkpoint::cast_elements(from, from_dtype, to, to_dtype, count);
  }
}

} // namespace

WeightsSource::WeightsSource(const std::string& path, const plan::Plan& plan, bool allow_missing,
                             bool allow_extra) {
  const plan::SafetensorsFiles files = plan::read_safetensors_files(path);
  struct Tensor {
    const plan::TensorEntry* entry;
    int32_t file;
  };
  std::unordered_map<std::string, Tensor> by_name;
  for (size_t f = 0; f < files.files.size(); ++f) {
    files_.push_back(File::open(files.files[f].path));
    for (const plan::TensorEntry& entry : files.files[f].tensors) {
      by_name.emplace(entry.name, Tensor{&entry, static_cast<int32_t>(f)});
    }
  }
  for (const auto& [alias, owner] : files.aliases) by_name.emplace(alias, by_name.at(owner));

  // A parameter's tensor has its own name, or one that is tied to it.
  const std::vector<plan::Parameter>& parameters = plan.model.parameters();
  std::vector<const Tensor*> found(parameters.size(), nullptr);
  std::unordered_set<const plan::TensorEntry*> used;
  for (int pass = 0; pass < 2; ++pass) {
    for (size_t p = 0; p < parameters.size(); ++p) {
      const auto root = static_cast<size_t>(parameters[p].root);
      const bool own = root == p;
      if (own != (pass == 0)) continue;
      const auto tensor = by_name.find(parameters[p].name);
      if (tensor == by_name.end()) continue;
      if (found[root] == nullptr) found[root] = &tensor->second;
      used.insert(tensor->second.entry);
    }
  }
  std::vector<std::string> missing, extra, reshaped, retyped;
  for (size_t p = 0; p < parameters.size(); ++p) {
    const plan::Parameter& parameter = parameters[p];
    if (parameter.root != static_cast<zero_param_id>(p)) continue;
    if (found[p] == nullptr) {
      missing.push_back(parameter.name);
      continue;
    }
    const plan::TensorEntry& entry = *found[p]->entry;
    if (entry.shape != parameter.shape) {
      reshaped.push_back(parameter.name + " (" + shape_text(entry.shape) + " in the file, " +
                         shape_text(parameter.shape) + " in the model)");
    } else if (entry.dtype != parameter.dtype &&
               !(is_float(entry.dtype) && is_float(parameter.dtype))) {
      retyped.push_back(parameter.name + " (" + dtype_name(entry.dtype) + " in the file, " +
                        dtype_name(parameter.dtype) + " in the model)");
    }
    From from;
    from.root = static_cast<zero_param_id>(p);
    from.file = found[p]->file;
    from.offset = files.files[static_cast<size_t>(from.file)].data_offset + entry.begin;
    from.dtype = entry.dtype;
    tensors_.push_back(from);
  }
  for (const plan::SafetensorsFiles::File& file : files.files) {
    for (const plan::TensorEntry& entry : file.tensors) {
      if (used.count(&entry) == 0) extra.push_back(entry.name);
    }
  }
  std::string sentence;
  if (!allow_missing) add_list(&sentence, missing, "missing in the file");
  if (!allow_extra) add_list(&sentence, extra, "not in the model");
  add_list(&sentence, reshaped, "of another shape");
  add_list(&sentence, retyped, "of a type that does not convert");
  if (!sentence.empty()) {
    fail(ZERO_ERR_FILE_MISMATCH, "weights \"%s\" do not fit the model: %s", path.c_str(),
         sentence.c_str());
  }
  std::sort(tensors_.begin(), tensors_.end(), [](const From& a, const From& b) {
    return a.file != b.file ? a.file < b.file : a.offset < b.offset;
  });
}

std::vector<std::string> WeightsSource::lines() const {
  std::vector<std::string> lines;
  for (const File& file : files_) {
    lines.push_back(format("a file of %llu bytes", static_cast<unsigned long long>(file.size())));
  }
  for (const From& from : tensors_) {
    lines.push_back(format("parameter %d: %s at byte %llu of file %d", from.root,
                           dtype_name(from.dtype), static_cast<unsigned long long>(from.offset),
                           from.file));
  }
  return lines;
}

void WeightsSource::read_into(Context& context, Stepper& stepper) const {
  for (const From& from : tensors_) {
    if (context.parameter(from.root).role == ZERO_PARAM_TRAINED) {
      read_trained(context, from);
      stepper.param_steps()[static_cast<size_t>(from.root)] = 0;
    } else {
      read_values(context, from);
    }
  }
}

template <typename Visit>
void WeightsSource::for_each_piece(const From& from, zero_span span, Visit visit) const {
  const uint64_t size = dtype_bytes(from.dtype);
  std::vector<std::byte> piece(std::min(kPieceElements, span.count) * size);
  for (uint64_t at = 0; at < span.count; at += kPieceElements) {
    const uint64_t count = std::min(kPieceElements, span.count - at);
    files_[static_cast<size_t>(from.file)].read(from.offset + (span.offset + at) * size,
                                                piece.data(), count * size);
    visit(span.offset + at, count, piece.data());
  }
}

void WeightsSource::read_trained(Context& context, const From& from) const {
  const plan::ParameterPlace& place = context.plan->places[static_cast<size_t>(from.root)];
  const zero_span span = context.plan->owned_span(from.root, context.rank());
  std::vector<float> masters(std::min(kPieceElements, span.count));
  for_each_piece(from, span, [&](uint64_t begin, uint64_t count, const std::byte* bytes) {
    convert(context, bytes, from.dtype, masters.data(), ZERO_DTYPE_FP32, count);
    const uint64_t at = place.offset + begin;
    write_masters(context, place.bucket, at, at + count, masters.data());
  });
  clear_states(context, from.root, span);
}

// Frozen parameters and buffers: the whole, or this rank's shard at stage 3.
void WeightsSource::read_values(Context& context, const From& from) const {
  const plan::Parameter& parameter = context.parameter(from.root);
  const uint64_t size = dtype_bytes(parameter.dtype);
  std::byte* value = context.storage->whole_value(from.root);
  zero_span span{0, parameter.elements};
  if (value == nullptr && parameter.elements != 0) {
    const plan::ParameterPlace& place = context.plan->places[static_cast<size_t>(from.root)];
    const plan::Bucket& bucket = context.bucket(place.bucket);
    span = context.plan->shard_span(from.root, context.rank());
    const uint64_t own = static_cast<uint64_t>(context.rank()) * bucket.shard_elements;
    // Where element span.offset lies; a rank without any does not look.
    value = span.count == 0 ? nullptr
                            : context.storage->of_bucket(place.bucket).params +
                                  (bucket.shard_offset + place.offset + span.offset - own) * size;
  }
  for_each_piece(from, span, [&](uint64_t begin, uint64_t count, const std::byte* bytes) {
    convert(context, bytes, from.dtype, value + (begin - span.offset) * size, parameter.dtype,
            count);
  });
}

} // namespace zero::engine
