// SPDX-License-Identifier: BSD-3-Clause
#include "base/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "base/checked.h"
#include "base/file_retry.h"
#include "base/file_system.h"

namespace zero {
namespace {

// One call moves at most 2^31 - 4096 bytes; a round figure below it keeps transfers aligned.
constexpr uint64_t kLargestCall = uint64_t{1} << 30;
constexpr uint64_t kHugePage = uint64_t{2} << 20;

bool is_aligned(uint64_t offset, const void* memory, uint64_t bytes) {
  return (offset | reinterpret_cast<uintptr_t>(memory) | bytes) % kDirectAlignment == 0;
}

unsigned long long number(uint64_t value) {
  return value;
}

int open_file(const std::string& path, int flags) {
  return uninterrupted([&] { return file_system().open(path.c_str(), flags | O_CLOEXEC, 0666); });
}

} // namespace

File File::open(const std::string& path, Caching caching) {
  File file;
  file.fd_ = open_file(path, O_RDONLY);
  if (file.fd_ < 0) fail_os(-file.fd_, "open file \"%s\" for reading", path.c_str());
  file.path_ = path;
  file.set_caching(caching);
  return file;
}

File File::create(const std::string& path, Caching caching) {
  File file;
  file.fd_ = open_file(path, O_RDWR | O_CREAT | O_EXCL);
  if (file.fd_ < 0) fail_os(-file.fd_, "create file \"%s\", which must be new", path.c_str());
  file.path_ = path;
  file.set_caching(caching);
  return file;
}

File::File(File&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      direct_(other.direct_.load()),
      path_(std::move(other.path_)) {}

File& File::operator=(File&& other) noexcept {
  if (this == &other) return *this;
  if (is_open()) file_system().close(fd_);
  fd_ = std::exchange(other.fd_, -1);
  direct_ = other.direct_.load();
  path_ = std::move(other.path_);
  return *this;
}

File::~File() {
  if (is_open()) file_system().close(fd_);
}

// After opening: an open that refuses O_DIRECT leaves a created file behind.
void File::set_caching(Caching caching) {
  direct_ = caching == Caching::kDirect && file_system().set_flags(fd_, O_DIRECT) >= 0;
}

void File::go_cached() const {
  if (!direct()) return;
  file_system().set_flags(fd_, 0);
  direct_ = false; // last: another thread that sees it may rely on it
}

void File::read(uint64_t offset, void* memory, uint64_t bytes) const {
  if (direct() && !is_aligned(offset, memory, bytes)) go_cached();
  uint64_t done = 0;
  while (done < bytes) {
    const uint64_t now = std::min(bytes - done, kLargestCall);
    char* const to = static_cast<char*>(memory) + done;
    const bool was_direct = direct();
    const ssize_t count =
        uninterrupted([&] { return file_system().pread(fd_, to, now, offset + done); });
    if (count == -EINVAL && was_direct) {
      go_cached();
      continue;
    }
    if (count < 0) {
      fail_os(static_cast<int>(-count), "read %llu bytes at offset %llu of \"%s\"", number(now),
              number(offset + done), path_.c_str());
    }
    if (count == 0) {
      fail(ZERO_ERR_FILE_INCOMPLETE, "\"%s\" ends at byte %llu, expected %llu bytes at offset %llu",
           path_.c_str(), number(offset + done), number(bytes), number(offset));
    }
    done += static_cast<uint64_t>(count);
    if (done < bytes && done % kDirectAlignment != 0) go_cached();
  }
}

void File::write(uint64_t offset, const void* memory, uint64_t bytes) const {
  if (direct() && !is_aligned(offset, memory, bytes)) go_cached();
  uint64_t done = 0;
  while (done < bytes) {
    const uint64_t now = std::min(bytes - done, kLargestCall);
    const char* const from = static_cast<const char*>(memory) + done;
    const bool was_direct = direct();
    const ssize_t count =
        uninterrupted([&] { return file_system().pwrite(fd_, from, now, offset + done); });
    if (count == -EINVAL && was_direct) {
      go_cached();
      continue;
    }
    if (count <= 0) {
      fail_os(count == 0 ? EIO : static_cast<int>(-count),
              "write %llu bytes at offset %llu of \"%s\"", number(now), number(offset + done),
              path_.c_str());
    }
    done += static_cast<uint64_t>(count);
    if (done < bytes && done % kDirectAlignment != 0) go_cached();
  }
}

void File::resize(uint64_t bytes) const {
  const int result = uninterrupted([&] { return file_system().truncate(fd_, bytes); });
  if (result < 0) fail_os(-result, "make \"%s\" %llu bytes long", path_.c_str(), number(bytes));
}

uint64_t File::size() const {
  struct stat status;
  const int result = uninterrupted([&] { return file_system().stat(fd_, &status); });
  if (result < 0) fail_os(-result, "ask for the size of \"%s\"", path_.c_str());
  return static_cast<uint64_t>(status.st_size);
}

// A failed sync is not repeated: the system may have dropped what it could not write.
void File::sync() const {
  const int result = uninterrupted([&] { return file_system().fsync(fd_); });
  if (result < 0) fail_os(-result, "sync \"%s\"", path_.c_str());
}

void File::sync_data() const {
  const int result = uninterrupted([&] { return file_system().fdatasync(fd_); });
  if (result < 0) fail_os(-result, "sync the data of \"%s\"", path_.c_str());
}

File::Locked File::try_lock(Lock lock) const noexcept {
  const int operation = (lock == Lock::kShared ? LOCK_SH : LOCK_EX) | LOCK_NB;
  const int result = uninterrupted([&] { return file_system().lock(fd_, operation); });
  if (result >= 0) return Locked::kYes;
  return result == -EWOULDBLOCK ? Locked::kTaken : Locked::kUnknown;
}

void File::unlock() const noexcept {
  if (is_open()) file_system().lock(fd_, LOCK_UN);
}

void File::close() {
  if (!is_open()) return;
  const int result = file_system().close(std::exchange(fd_, -1));
  // An interrupted close has closed.
  if (result < 0 && result != -EINTR) fail_os(-result, "close \"%s\"", path_.c_str());
}

namespace {

// [bytes], a multiple of a huge page, at a multiple of one; null: no memory.
uint8_t* map_huge(uint64_t bytes) {
  void* const all =
      mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<uint8_t*>(all);
  const uint64_t before = (kHugePage - reinterpret_cast<uintptr_t>(all) % kHugePage) % kHugePage;
  if (before > 0) munmap(begin, before);
  munmap(begin + before + bytes, kHugePage - before);
  madvise(begin + before, bytes, MADV_HUGEPAGE); // a wish
  return begin + before;
}

} // namespace

AlignedBuffer::AlignedBuffer(uint64_t bytes) : bytes_(round_up(bytes, kDirectAlignment)) {
  if (bytes_ == 0) return;
  if (bytes_ >= kHugePage) {
    const uint64_t mapped = round_up(bytes_, kHugePage);
    memory_ = {map_huge(mapped), Free{mapped}};
  } else {
    memory_ = {static_cast<uint8_t*>(
                   ::operator new (bytes_, std::align_val_t{kDirectAlignment}, std::nothrow)),
               Free{0}};
  }
  if (memory_ == nullptr) {
    fail(ZERO_ERR_OUT_OF_MEMORY, "a file buffer of %llu bytes does not fit in memory",
         number(bytes_));
  }
}

void AlignedBuffer::Free::operator()(uint8_t* memory) const {
  if (mapped_bytes > 0) {
    munmap(memory, mapped_bytes);
  } else {
    ::operator delete (memory, std::align_val_t{kDirectAlignment});
  }
}

std::string read_file(const std::string& path, uint64_t limit) {
  const File file = File::open(path);
  const uint64_t bytes = file.size();
  if (bytes > limit) {
    fail(ZERO_ERR_FILE_FORMAT, "\"%s\" has %llu bytes, expected at most %llu", path.c_str(),
         number(bytes), number(limit));
  }
  std::string content(bytes, '\0');
  file.read(0, content.data(), bytes);
  return content;
}

void write_file(const std::string& path, std::string_view bytes) {
  File file = File::create(path);
  file.write(0, bytes.data(), bytes.size());
  file.sync();
  file.close();
}

void replace_file(const std::string& path, std::string_view bytes) {
  const std::string beside = path + ".new";
  remove_file(beside); // of a writer that died
  write_file(beside, bytes);
  rename_path(beside, path);
  sync_folder(parent_folder(path));
}

} // namespace zero
