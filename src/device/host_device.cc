// The host as a device: anonymous memory on huge pages, queue streams, and a pool of threads.
// SPDX-License-Identifier: BSD-3-Clause
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/checked.h"
#include "base/error.h"
#include "base/first_touch.h"
#include "device/device.h"
#include "device/host_pool.h"
#include "device/host_stream.h"

namespace zero::device {

namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kHugePage = UINT64_C(2) << 20;

uint64_t mapped_bytes(uint64_t bytes) {
  return round_up(bytes == 0 ? 1 : bytes, kPage);
}

[[noreturn]] void fail_memory(uint64_t bytes, int error) {
  fail(ZERO_ERR_OUT_OF_MEMORY, "%llu bytes of host memory could not be allocated: %s",
       static_cast<unsigned long long>(bytes), std::strerror(error));
}

// First touch now, not in the first step: one call where the kernel has it (Linux 5.14), else one
// write a page.  0 or an errno.
int populate(char* memory, uint64_t bytes) {
#ifdef MADV_POPULATE_WRITE
  int result;
  do {
    result = madvise(memory, bytes, MADV_POPULATE_WRITE);
  } while (result != 0 && (errno == EINTR || errno == EAGAIN));
  if (result == 0) return 0;
  if (errno != EINVAL) return errno;
#endif
  for (uint64_t at = 0; at < bytes; at += kPage) {
    static_cast<volatile char*>(memory)[at] = 0;
  }
  return 0;
}

int populate_small(char* memory, uint64_t bytes) {
  madvise(memory, bytes, MADV_NOHUGEPAGE);
  return populate(memory, bytes);
}

// The calling thread is the stream: what was recorded has run.
class HostEvent final : public Event {
 public:
  void record() override {}
  void wait() override {}
  void host_wait() override {}
  bool done() const override { return true; }
};

class HostDevice final : public Device {
 public:
  explicit HostDevice(int32_t threads) : pool_(threads) {}

  zero_place place() const override { return ZERO_PLACE_HOST; }
  void* allocate(uint64_t bytes) override;
  void release(void* memory, uint64_t bytes) override;
  void copy(void* dst, const void* src, uint64_t bytes) override {
    if (bytes != 0) std::memcpy(dst, src, bytes);
  }
  void fill(void* dst, uint8_t value, uint64_t bytes) override {
    if (bytes != 0) std::memset(dst, value, bytes);
  }
  void synchronize() override {}
  std::unique_ptr<Event> create_event() override { return std::make_unique<HostEvent>(); }
  std::unique_ptr<Stream> create_stream(bool inline_stream) override;
  int32_t parallel_width() const override { return pool_.width(); }
  void parallel(uint64_t count, uint64_t grain, Part part, void* context) override {
    pool_.run(count, grain, part, context);
  }

 private:
  HostPool pool_;
};

// From 2 MiB on, the mapping is made one huge page too long and its ends are given back, so that it
// starts on a huge page.
void* HostDevice::allocate(uint64_t bytes) {
  if (bytes > UINT64_MAX / 2) fail_memory(bytes, ENOMEM);
  const uint64_t length = mapped_bytes(bytes);
  const uint64_t slack = length >= kHugePage ? kHugePage : 0;
  void* mapping =
      mmap(nullptr, length + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) fail_memory(bytes, errno);
  char* memory = static_cast<char*>(mapping);
  if (slack != 0) {
    const uint64_t address = reinterpret_cast<uintptr_t>(mapping);
    const uint64_t before = round_up(address, kHugePage) - address;
    if (before != 0) munmap(memory, before);
    memory += before;
    if (before != slack) munmap(memory + length, slack - before);
    // Refused where the kernel has no huge pages: then ordinary ones do.
    madvise(memory, length, MADV_HUGEPAGE);
  }
  const int error = slack != 0 ? touch_in_steps(memory, length, &populate, &populate_small)
                               : populate(memory, length);
  if (error != 0) {
    munmap(memory, length);
    fail_memory(bytes, error == EFAULT ? ENOMEM : error);
  }
  if (slack != 0) madvise(memory, length, MADV_HUGEPAGE); // the kernel may join small pages later
  return memory;
}

void HostDevice::release(void* memory, uint64_t bytes) {
  if (memory != nullptr) munmap(memory, mapped_bytes(bytes));
}

std::unique_ptr<Stream> HostDevice::create_stream(bool inline_stream) {
  if (inline_stream) return std::make_unique<InlineStream>();
  return std::make_unique<QueueStream>();
}

} // namespace

std::unique_ptr<Device> make_host_device(int32_t threads) {
  if (threads < 1) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "kernel threads are %d, expected at least 1",
         static_cast<int>(threads));
  }
  return std::make_unique<HostDevice>(threads);
}

} // namespace zero::device
