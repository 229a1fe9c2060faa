// One file that torch.save wrote: its pickle as plain data, and where the bytes of a tensor lie.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <string>
#include <unordered_map>

#include "checkpoint/pickle_document.h"
#include "checkpoint/zip_reader.h"

namespace zero::checkpoint {

class DeepSpeedArchive {
 public:
  // Reads the pickle; no tensor.
  explicit DeepSpeedArchive(const std::string& path, Opening opening = Opening::kOnce);

  const std::string& path() const { return zip_.file(); }
  const PickleDocument& document() const { return document_; }
  PickleRef root() const { return document_.root; }

  // Where the bytes of a tensor's first element lie in the file.  what names it in sentences.
  // Throws FILE_FORMAT, UNSUPPORTED for one that is not contiguous or of another element type.
  uint64_t locate(PickleRef tensor, const std::string& what) const;
  void read(uint64_t offset, void* out, uint64_t count) const { zip_.read(offset, out, count); }
  // Compares the CRC of every entry.
  void verify() const;

 private:
  ZipReader zip_;
  std::string prefix_; // of the names of its entries, "archive/"
  PickleDocument document_;
  mutable std::unordered_map<const ZipEntry*, uint64_t> starts_; // of entries that were asked for
};

} // namespace zero::checkpoint
