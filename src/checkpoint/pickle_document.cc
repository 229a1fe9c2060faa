// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/pickle_document.h"

namespace zero::checkpoint {

uint64_t TorchTensor::elements() const {
  uint64_t count = 1;
  for (const int64_t extent : shape) count *= static_cast<uint64_t>(extent);
  return count;
}

bool TorchTensor::is_contiguous() const {
  if (elements() == 0) return true;
  int64_t expected = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != 1 && stride[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

PickleRef PickleDocument::find(PickleRef dict, std::string_view key) const {
  if (is(dict, PickleKind::kObject)) dict = attributes(dict);
  if (!is(dict, PickleKind::kDict)) return kNoPickle;
  const std::vector<PickleRef>& list = items(dict);
  for (size_t i = list.size(); i >= 2; i -= 2) { // the last one said wins
    if (is(list[i - 2], PickleKind::kText) && text(list[i - 2]) == key) return list[i - 1];
  }
  return kNoPickle;
}

} // namespace zero::checkpoint
