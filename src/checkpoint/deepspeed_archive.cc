// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/deepspeed_archive.h"

#include <string_view>

#include "base/dtype.h"
#include "base/error.h"
#include "checkpoint/pickle_reader.h"

namespace zero::checkpoint {
namespace {

constexpr std::string_view kPickleName = "data.pkl";

} // namespace

DeepSpeedArchive::DeepSpeedArchive(const std::string& path, Opening opening)
    : zip_(open_byte_source(path, opening)) {
  const ZipEntry* pickle = nullptr;
  for (const ZipEntry& entry : zip_.entries()) {
    const size_t slash = entry.name.find('/');
    if (slash == std::string::npos || entry.name.substr(slash + 1) != kPickleName) continue;
    pickle = &entry;
    prefix_ = entry.name.substr(0, slash + 1);
  }
  if (pickle == nullptr) {
    fail(ZERO_ERR_FILE_FORMAT, "file \"%s\": expected an entry .../data.pkl, as torch.save writes",
         path.c_str());
  }
  if (const ZipEntry* order = zip_.find(prefix_ + "byteorder")) {
    const std::string text = zip_.read_all(*order, 16);
    if (text != "little") {
      fail(ZERO_ERR_UNSUPPORTED, "file \"%s\": its byte order is \"%s\", expected \"little\"",
           path.c_str(), text.c_str());
    }
  }
  document_ = read_pickle(zip_.read_all(*pickle, kLargestPickle), path);
}

uint64_t DeepSpeedArchive::locate(PickleRef node, const std::string& what) const {
  if (!document_.is(node, PickleKind::kTensor)) {
    fail(ZERO_ERR_FILE_FORMAT, "file \"%s\": %s is missing or no tensor", path().c_str(),
         what.c_str());
  }
  const TorchTensor& tensor = document_.tensor(node);
  const TorchStorage& storage = document_.storage(tensor);
  const uint64_t size = dtype_bytes(storage.dtype);
  if (size == 0 || !tensor.is_contiguous()) {
    fail(ZERO_ERR_UNSUPPORTED,
         "file \"%s\": %s is a tensor of %s%s, expected one without holes of fp32, fp16, bf16, "
         "fp64, int64, int32 or uint8",
         path().c_str(), what.c_str(), storage.type.c_str(),
         tensor.is_contiguous() ? "" : " with strides of its own");
  }
  const ZipEntry* entry = zip_.find(prefix_ + "data/" + storage.key);
  if (entry == nullptr || entry->bytes / size < storage.elements) {
    fail(ZERO_ERR_FILE_FORMAT,
         "file \"%s\": %s lies in storage \"%s\" of %llu elements, but its entry has %llu bytes",
         path().c_str(), what.c_str(), storage.key.c_str(),
         static_cast<unsigned long long>(storage.elements),
         static_cast<unsigned long long>(entry == nullptr ? 0 : entry->bytes));
  }
  const auto [start, is_new] = starts_.emplace(entry, 0);
  if (is_new) start->second = zip_.data_offset(*entry);
  return start->second + tensor.offset * size;
}

void DeepSpeedArchive::verify() const {
  for (const ZipEntry& entry : zip_.entries()) zip_.verify(entry);
}

} // namespace zero::checkpoint
