// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/byte_source.h"

#include <cstring>

#include "base/error.h"
#include "base/file.h"

namespace zero::checkpoint {
namespace {

class FileSource final : public ByteSource {
 public:
  explicit FileSource(const std::string& path) : file_(File::open(path)), bytes_(file_.size()) {}
  uint64_t bytes() const override { return bytes_; }
  const std::string& name() const override { return file_.path(); }
  void read(uint64_t offset, void* out, uint64_t count) const override {
    file_.read(offset, out, count);
  }

 private:
  File file_;
  uint64_t bytes_;
};

// A process may not have a descriptor for each of many thousand files.
class ReopenedSource final : public ByteSource {
 public:
  explicit ReopenedSource(const std::string& path) : path_(path), bytes_(File::open(path).size()) {}
  uint64_t bytes() const override { return bytes_; }
  const std::string& name() const override { return path_; }
  void read(uint64_t offset, void* out, uint64_t count) const override {
    File::open(path_).read(offset, out, count);
  }

 private:
  std::string path_;
  uint64_t bytes_;
};

} // namespace

std::unique_ptr<ByteSource> open_byte_source(const std::string& path, Opening opening) {
  if (opening == Opening::kEachTime) return std::make_unique<ReopenedSource>(path);
  return std::make_unique<FileSource>(path);
}

void MemorySource::read(uint64_t offset, void* out, uint64_t count) const {
  if (offset > bytes_.size() || count > bytes_.size() - offset) {
    fail(ZERO_ERR_FILE_INCOMPLETE, "file \"%s\", offset %llu: expected %llu bytes", name_.c_str(),
         static_cast<unsigned long long>(offset), static_cast<unsigned long long>(count));
  }
  if (count != 0) std::memcpy(out, bytes_.data() + offset, count);
}

} // namespace zero::checkpoint
