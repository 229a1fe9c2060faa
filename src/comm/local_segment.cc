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

#include "base/error.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace zero::comm {
namespace {

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
  void* const base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) fail_memory(errno, "mapping", bytes);
  (void)madvise(base, bytes, MADV_DONTFORK);
  auto segment = std::make_shared<LocalSegment>(static_cast<char*>(base), bytes, status.st_dev,
                                                status.st_ino, getpid());
  known = segment;
  return segment;
}

int populate_shared_memory(void* memory, uint64_t bytes) {
  if (bytes == 0 || madvise(memory, bytes, MADV_POPULATE_WRITE) == 0) return 0;
  if (errno != EINVAL) return errno;
  // Before Linux 5.14: touch each page.  Nobody else writes here yet.
  volatile char* const pages = static_cast<volatile char*>(memory);
  for (uint64_t at = 0; at < bytes; at += 4096) pages[at] = pages[at];
  return 0;
}

} // namespace zero::comm
