// The names that a pickle may use, and what becomes of them.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <zero.h>

#include <string_view>

namespace zero::checkpoint {

enum class PickleClass {
  kUnknown,
  kOrderedDict,
  kSet,
  kSize, // torch.Size: a tuple
  kRebuildTensor,
  kRebuildParameter,
  kRebuildFromType,
  kTensorType,
  kStorage,
  kValue, // a name alone: torch.float16
  kDevice,
  kIntegerEnum,
  kEncode, // how protocol 2 writes bytes
  kObject // attributes only
};

// name: "module.name".
PickleClass pickle_class(std::string_view name);
// Of "torch.FloatStorage"; 0 for one that libzero does not have.
zero_dtype storage_dtype(std::string_view name);

} // namespace zero::checkpoint
