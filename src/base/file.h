// Files and folders: whole transfers or an error that names the path, what was tried, what was
// expected and the system's reason (ZERO_ERR_NO_SPACE, else ZERO_ERR_IO; errno in native_code).
// Interrupted calls are repeated and short ones continued.  Nothing is durable before it is synced:
// a file's bytes by sync, its name by sync_folder of the folder that it lies in.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace zero {

// Past the page cache: memory, offset and length of each transfer are multiples of
// kDirectAlignment. Where the file system has no such thing, or a transfer is not aligned, the file
// falls back to the cache; direct() says what is so.
enum class Caching { kCached, kDirect };
constexpr uint64_t kDirectAlignment = 4096;

class File {
 public:
  // An existing file, for reading.
  static File open(const std::string& path, Caching caching = Caching::kCached);
  // A new file, for writing and reading; an existing one is an error (ZERO_ERR_IO, EEXIST).
  static File create(const std::string& path, Caching caching = Caching::kCached);

  File() = default;
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File(); // closes; a written file is closed by close(), which can fail

  bool is_open() const { return fd_ >= 0; }
  bool direct() const { return direct_.load(std::memory_order_relaxed); }
  const std::string& path() const { return path_; }

  // All of it.  What the file does not have is ZERO_ERR_FILE_INCOMPLETE: path, offset, bytes
  // expected. Any number of threads may read and write one file at different offsets.
  void read(uint64_t offset, void* memory, uint64_t bytes) const;
  void write(uint64_t offset, const void* memory, uint64_t bytes) const;
  void resize(uint64_t bytes) const;
  uint64_t size() const;
  void sync() const; // bytes, size and times
  void sync_data() const; // bytes and size
  // Advisory, of the whole file, and over with this File or its process; never waits.  kTaken: by
  // another File, maybe of another machine; kUnknown: the file system has no such thing.
  enum class Lock { kShared, kExclusive };
  enum class Locked { kYes, kTaken, kUnknown };
  Locked try_lock(Lock lock) const noexcept;
  void unlock() const noexcept;
  void close();

 private:
  void set_caching(Caching caching);
  void go_cached() const;
  int fd_ = -1;
  mutable std::atomic<bool> direct_{false};
  std::string path_;
};

// Memory at a multiple of kDirectAlignment, its size rounded up to one; not cleared.  From 2 MiB on
// pages of its own, huge ones where the system has some (heap that was used before stays in small
// ones): a transfer past the page cache is then in few pieces.
class AlignedBuffer {
 public:
  explicit AlignedBuffer(uint64_t bytes); // ZERO_ERR_OUT_OF_MEMORY
  uint8_t* data() const { return memory_.get(); }
  uint64_t size() const { return bytes_; }

 private:
  struct Free {
    uint64_t mapped_bytes; // 0: of the heap
    void operator()(uint8_t* memory) const;
  };
  uint64_t bytes_;
  std::unique_ptr<uint8_t, Free> memory_;
};

enum class PathKind { kAbsent, kFile, kFolder, kOther };
struct PathInfo {
  PathKind kind = PathKind::kAbsent;
  uint64_t bytes = 0;
  int64_t modified_ns = 0;
};
PathInfo path_info(const std::string& path); // of what a link points to

// The names in a folder, sorted as bytes.
std::vector<std::string> list_folder(const std::string& path);

// One new folder; an existing one is an error (EEXIST).
void make_folder(const std::string& path);
// A folder and what lacks above it; every folder made is synced into the one above it.  Ranks and
// jobs may do so at one time.
void make_folders(const std::string& path);

// Replaces a file (or an empty folder) at `to`.
void rename_path(const std::string& from, const std::string& to);
// The same where nothing may be replaced: false when `to` exists.
bool rename_to_new(const std::string& from, const std::string& to);
// Both names at once, for replacing a folder that is not empty: false where the file system cannot.
bool exchange_paths(const std::string& one, const std::string& other);

void remove_file(const std::string& path); // absent: fine
void remove_tree(
    const std::string& path); // a file, a link, or a folder with all in it; absent: fine
void sync_folder(const std::string& path);

// A whole small file; more than `limit` bytes is ZERO_ERR_FILE_FORMAT.
std::string read_file(const std::string& path, uint64_t limit);
// A new file, synced.  Its name is durable after sync_folder.
void write_file(const std::string& path, std::string_view bytes);
// Swaps a file's content: written beside (`path`.new), synced, renamed, its folder synced.  Whoever
// reads sees the old bytes or the new ones, whatever happens.
void replace_file(const std::string& path, std::string_view bytes);

std::string parent_folder(const std::string& path); // "." for a name alone, "/" for "/x"
std::string base_name(const std::string& path); // "b" of "a/b" and of "a/b/"
std::string join_path(const std::string& folder, const std::string& name);

} // namespace zero
