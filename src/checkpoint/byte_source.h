// Bytes that can be read at any offset: a file, or memory in tests.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace zero::checkpoint {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual uint64_t bytes() const = 0;
  virtual const std::string& name() const = 0; // for sentences
  // Throws FILE_INCOMPLETE where the file ends before, IO.
  virtual void read(uint64_t offset, void* out, uint64_t count) const = 0;
};

// kEachTime: open only while it is read, for many files at once.
enum class Opening { kOnce, kEachTime };

// Throws NOT_FOUND, IO.
std::unique_ptr<ByteSource> open_byte_source(const std::string& path,
                                             Opening opening = Opening::kOnce);

class MemorySource final : public ByteSource {
 public:
  MemorySource(std::string_view bytes, std::string name) : bytes_(bytes), name_(std::move(name)) {}
  uint64_t bytes() const override { return bytes_.size(); }
  const std::string& name() const override { return name_; }
  void read(uint64_t offset, void* out, uint64_t count) const override;

 private:
  std::string_view bytes_;
  std::string name_;
};

} // namespace zero::checkpoint
