// A pickle's plain data as JSON text.
// SPDX-License-Identifier: BSD-3-Clause
#include <json/value.h>
#include <json/writer.h>

#include <algorithm>
#include <cmath>

#include "base/dtype.h"
#include "base/error.h"
#include "checkpoint/deepspeed_build.h"

namespace zero::checkpoint {
namespace {

constexpr int kDeepest = 64;
constexpr uint64_t kMostValues = 1000000;
constexpr uint64_t kLargestTensor = uint64_t{1} << 20;

std::string hex(const std::string& bytes) {
  static const char digits[] = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    text += digits[static_cast<unsigned char>(c) >> 4];
    text += digits[static_cast<unsigned char>(c) & 15];
  }
  return text;
}

class Writer {
 public:
  explicit Writer(const DeepSpeedArchive& archive)
      : archive_(archive), document_(archive.document()) {}

  Json::Value value(PickleRef node, int depth) {
    if (depth > kDeepest || ++values_ > kMostValues) {
      fail(ZERO_ERR_FILE_FORMAT,
           "file \"%s\": its client state or config is deeper than %d or has more than %llu values",
           archive_.path().c_str(), kDeepest, static_cast<unsigned long long>(kMostValues));
    }
    switch (document_.kind(node)) {
      case PickleKind::kNone:
        return {};
      case PickleKind::kBool:
        return document_.integer(node) != 0;
      case PickleKind::kInteger:
        return Json::Int64{document_.integer(node)};
      case PickleKind::kNumber:
        // JSON has no such numbers.
        if (!std::isfinite(document_.number(node))) return format("%g", document_.number(node));
        return document_.number(node);
      case PickleKind::kBigInteger:
      case PickleKind::kText:
      case PickleKind::kClass:
        return document_.text(node);
      case PickleKind::kBytes: {
        Json::Value object(Json::objectValue);
        object["hex"] = hex(document_.text(node));
        return object;
      }
      case PickleKind::kList:
      case PickleKind::kTuple:
      case PickleKind::kSet: {
        Json::Value list(Json::arrayValue);
        for (const PickleRef item : document_.items(node)) list.append(value(item, depth + 1));
        return list;
      }
      case PickleKind::kDict:
        return object(node, depth, {});
      case PickleKind::kObject: {
        const PickleRef attributes = document_.attributes(node);
        return attributes == kNoPickle ? Json::Value(Json::objectValue)
                                       : value(attributes, depth + 1);
      }
      case PickleKind::kTensor:
        return tensor(node);
      default:
        fail(ZERO_ERR_UNSUPPORTED, "file \"%s\": its client state holds a storage without a tensor",
             archive_.path().c_str());
    }
  }

  Json::Value object(PickleRef node, int depth, const std::vector<std::string>& without) {
    Json::Value result(Json::objectValue);
    const std::vector<PickleRef>& items = document_.items(node);
    for (size_t i = 0; i + 1 < items.size(); i += 2) {
      const std::string key = key_text(items[i]);
      if (std::find(without.begin(), without.end(), key) != without.end()) continue;
      result[key] = value(items[i + 1], depth + 1);
    }
    return result;
  }

 private:
  std::string key_text(PickleRef node) const {
    switch (document_.kind(node)) {
      case PickleKind::kText:
      case PickleKind::kBigInteger:
        return document_.text(node);
      case PickleKind::kInteger:
        return std::to_string(document_.integer(node));
      case PickleKind::kBool:
        return document_.integer(node) != 0 ? "True" : "False";
      case PickleKind::kNone:
        return "None";
      default:
        fail(ZERO_ERR_UNSUPPORTED,
             "file \"%s\": a dict of its client state or config has a key that is no text and no "
             "integer",
             archive_.path().c_str());
    }
  }

  Json::Value tensor(PickleRef node) {
    const TorchTensor& shape = document_.tensor(node);
    const zero_dtype dtype = document_.storage(shape).dtype;
    const uint64_t start = archive_.locate(node, "a tensor of the client state");
    const uint64_t bytes = shape.elements() * dtype_bytes(dtype);
    tensor_bytes_ += bytes;
    if (tensor_bytes_ > kLargestTensor) {
      fail(ZERO_ERR_UNSUPPORTED,
           "file \"%s\": the tensors of its client state have more than %llu bytes",
           archive_.path().c_str(), static_cast<unsigned long long>(kLargestTensor));
    }
    std::string raw(bytes, '\0');
    archive_.read(start, raw.data(), bytes);
    Json::Value object(Json::objectValue);
    object["dtype"] = dtype_name(dtype);
    object["shape"] = Json::Value(Json::arrayValue);
    for (const int64_t extent : shape.shape) object["shape"].append(Json::Int64{extent});
    object["hex"] = hex(raw);
    return object;
  }

  const DeepSpeedArchive& archive_;
  const PickleDocument& document_;
  uint64_t values_ = 0;
  uint64_t tensor_bytes_ = 0;
};

} // namespace

std::string deepspeed_json(const DeepSpeedArchive& archive, PickleRef dict,
                           const std::vector<std::string>& without) {
  Json::StreamWriterBuilder builder;
  builder["indentation"] = "";
  builder["emitUTF8"] = true;
  builder["precision"] = 17;
  Writer writer(archive);
  if (!archive.document().is(dict, PickleKind::kDict)) return "{}";
  return Json::writeString(builder, writer.object(dict, 0, without));
}

} // namespace zero::checkpoint
