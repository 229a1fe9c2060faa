// SPDX-License-Identifier: BSD-3-Clause
#include "comm/local_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "base/first_touch.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace zero::comm {
namespace {

constexpr uint64_t kPage = 4096;

// The one table of a process: which memfd is mapped where.  Never destroyed, so that segments may
// be let go in static destructors.
struct Mappings {
  std::mutex mutex;
  std::map<std::pair<uint64_t, uint64_t>, std::weak_ptr<LocalSegment>> by_inode;
};
Mappings& mappings() {
  static Mappings* const table = new Mappings;
  return *table;
}

// mmap of a memfd at a multiple of kHugePage; MAP_FAILED with errno.
void* map_aligned(int fd, uint64_t bytes) {
  void* const reserved =
      mmap(nullptr, bytes + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (reserved == MAP_FAILED) return MAP_FAILED;
  char* const start = static_cast<char*>(reserved);
  char* const end = start + bytes + kHugePage;
  const uint64_t beyond = reinterpret_cast<uintptr_t>(start) % kHugePage;
  char* const aligned = start + (beyond == 0 ? 0 : kHugePage - beyond);
  void* const mapped = mmap(aligned, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
  const int error = errno;
  char* const used = mapped == MAP_FAILED ? aligned : aligned + round_up(bytes, kPage);
  if (aligned > start) munmap(start, static_cast<size_t>(aligned - start));
  if (end > used) munmap(used, static_cast<size_t>(end - used));
  errno = error;
  return mapped;
}

int populate_small(char* memory, uint64_t bytes) {
  return bytes == 0 || madvise(memory, bytes, MADV_POPULATE_WRITE) == 0 ? 0 : errno;
}

// Shared memory gets huge pages by itself only where the system says so; asked for in so many
// words it gets them anyway.  One page of each must be there first.  Where it cannot: small pages.
int populate_huge(char* memory, uint64_t bytes) {
  for (uint64_t at = 0; at < bytes; at += kHugePage) {
    const int error = populate_small(memory + at, kPage);
    if (error != 0) return error;
  }
  (void)madvise(memory, bytes, MADV_COLLAPSE);
  return populate_small(memory, bytes);
}

// What of the memory is whole huge pages.
int populate_middle(char* memory, uint64_t bytes) {
  const uint64_t beyond = reinterpret_cast<uintptr_t>(memory) % kHugePage;
  const uint64_t skipped = beyond == 0 ? 0 : kHugePage - beyond;
  if (bytes < skipped + kHugePage) return 0;
  return touch_in_steps(memory + skipped, (bytes - skipped) / kHugePage * kHugePage, &populate_huge,
                        &populate_small);
}

[[noreturn]] void fail_memory(int errno_value, const char* what, uint64_t bytes) {
  throw Error(ZERO_ERR_OUT_OF_MEMORY,
              format("%s of %llu bytes of shared memory: %s", what,
                     static_cast<unsigned long long>(bytes), std::strerror(errno_value)),
              -1, errno_value, "os");
}

} // namespace

LocalSegment::LocalSegment(char* base, uint64_t bytes, uint64_t device, uint64_t inode, int owner)
    : base_(base), bytes_(bytes), device_(device), inode_(inode), owner_(owner) {}

LocalSegment::~LocalSegment() {
  if (owner_ != getpid()) return; // a forked child: there is nothing here, or something else
  {
    Mappings& table = mappings();
    const std::lock_guard<std::mutex> lock(table.mutex);
    const auto found = table.by_inode.find({device_, inode_});
    // Another rank may have mapped it anew since the last owner let go.
    if (found != table.by_inode.end() && found->second.expired()) table.by_inode.erase(found);
  }
  munmap(base_, bytes_);
}

Descriptor create_shared_memory(uint64_t bytes) {
  // A memfd may be of any size; the kernel would end the process that fills it.
  const uint64_t installed =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  if (bytes > installed) fail_memory(ENOMEM, "creation", bytes);
  Descriptor fd(memfd_create("libzero", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) fail_memory(errno, "creation", bytes);
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) fail_memory(errno, "sizing", bytes);
  // No rank can make another die of SIGBUS.  Only a precaution: a kernel may refuse it.
  (void)fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  return fd;
}

std::shared_ptr<LocalSegment> map_shared_memory(int fd, uint64_t bytes) {
  struct stat status;
  if (fstat(fd, &status) != 0) fail_memory(errno, "inspection", bytes);
  if (static_cast<uint64_t>(status.st_size) < bytes) fail_memory(EINVAL, "inspection", bytes);
  Mappings& table = mappings();
  const std::lock_guard<std::mutex> lock(table.mutex);
  std::weak_ptr<LocalSegment>& known = table.by_inode[{status.st_dev, status.st_ino}];
  if (std::shared_ptr<LocalSegment> segment = known.lock()) return segment;
  void* const base = bytes >= kHugePage
                         ? map_aligned(fd, bytes)
                         : mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) fail_memory(errno, "mapping", bytes);
  (void)madvise(base, bytes, MADV_DONTFORK);
  auto segment = std::make_shared<LocalSegment>(static_cast<char*>(base), bytes, status.st_dev,
                                                status.st_ino, getpid());
  known = segment;
  return segment;
}

int populate_shared_memory(void* memory, uint64_t bytes) {
  int error = populate_middle(static_cast<char*>(memory), bytes);
  if (error == 0) error = populate_small(static_cast<char*>(memory), bytes);
  if (error == 0) return 0;
  if (error != EINVAL) return error;
  // Before Linux 5.14: touch each page.
  volatile char* const pages = static_cast<volatile char*>(memory);
  for (uint64_t at = 0; at < bytes; at += kPage) pages[at] = pages[at];
  return 0;
}

} // namespace zero::comm
