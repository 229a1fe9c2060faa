// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/pickle_classes.h"

namespace zero::checkpoint {
namespace {

struct Name {
  std::string_view name;
  PickleClass what;
};

constexpr Name kNames[] = {
    {"collections.OrderedDict", PickleClass::kOrderedDict},
    {"__builtin__.set", PickleClass::kSet},
    {"builtins.set", PickleClass::kSet},
    {"_codecs.encode", PickleClass::kEncode},
    {"torch.Size", PickleClass::kSize},
    {"torch.device", PickleClass::kDevice},
    {"torch.Tensor", PickleClass::kTensorType},
    {"torch.nn.parameter.Parameter", PickleClass::kTensorType},
    {"torch._utils._rebuild_tensor_v2", PickleClass::kRebuildTensor},
    {"torch._utils._rebuild_parameter", PickleClass::kRebuildParameter},
    {"torch._tensor._rebuild_from_type_v2", PickleClass::kRebuildFromType},
    {"torch.float32", PickleClass::kValue},
    {"torch.float16", PickleClass::kValue},
    {"torch.bfloat16", PickleClass::kValue},
    {"torch.float64", PickleClass::kValue},
    {"torch.int64", PickleClass::kValue},
    {"torch.int32", PickleClass::kValue},
    {"torch.uint8", PickleClass::kValue},
    {"torch.bool", PickleClass::kValue},
    {"deepspeed.runtime.zero.config.ZeroStageEnum", PickleClass::kIntegerEnum},
    {"deepspeed.runtime.fp16.loss_scaler.LossScaler", PickleClass::kObject},
    {"deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler", PickleClass::kObject},
    {"deepspeed.utils.tensor_fragment.fragment_address", PickleClass::kObject},
};

struct Storage {
  std::string_view name;
  zero_dtype dtype;
};

constexpr Storage kStorages[] = {
    {"torch.FloatStorage", ZERO_DTYPE_FP32},
    {"torch.HalfStorage", ZERO_DTYPE_FP16},
    {"torch.BFloat16Storage", ZERO_DTYPE_BF16},
    {"torch.DoubleStorage", ZERO_DTYPE_FP64},
    {"torch.LongStorage", ZERO_DTYPE_INT64},
    {"torch.IntStorage", ZERO_DTYPE_INT32},
    {"torch.ByteStorage", ZERO_DTYPE_UINT8},
    {"torch.BoolStorage", ZERO_DTYPE_UINT8},
    {"torch.CharStorage", 0},
    {"torch.ShortStorage", 0},
};

} // namespace

PickleClass pickle_class(std::string_view name) {
  for (const Name& known : kNames) {
    if (known.name == name) return known.what;
  }
  for (const Storage& known : kStorages) {
    if (known.name == name) return PickleClass::kStorage;
  }
  return PickleClass::kUnknown;
}

zero_dtype storage_dtype(std::string_view name) {
  for (const Storage& known : kStorages) {
    if (known.name == name) return known.dtype;
  }
  return 0;
}

} // namespace zero::checkpoint
