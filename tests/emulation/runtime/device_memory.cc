// SPDX-License-Identifier: BSD-3-Clause
#include "device_memory.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>

namespace cuemu {
namespace {

constexpr uint64_t kRange = UINT64_C(1) << 36; // addresses of a device, used once each
constexpr uint64_t kUnit = 256; // valid_ has an entry each
constexpr uint64_t kGap = 512; // between allocations
constexpr uint64_t kPage = 4096;
constexpr uint64_t kPoisonedWhole = UINT64_C(64) << 20;

struct Range {
  char* base = nullptr;
  uint16_t* valid = nullptr; // bytes of each unit, counted from its start
  uint64_t cursor = 0, used = 0;
  uint64_t low = 0; // nothing is live below
  bool open = false;
  std::map<char*, uint64_t> live;
};

struct Pinned {
  uint64_t bytes;
  bool owned;
};

// Never destroyed: other threads may still be at it when the process ends.
struct Memory {
  Range range[kMostDevices];
  std::mutex mutex; // of everything below, and of live, cursor, used
  std::map<char*, Pinned> pinned;
};
Memory& memory() {
  static Memory* const all = new Memory;
  return *all;
}
char* reserved_base = nullptr; // of all ranges, one behind the other
struct sigaction before_segv;

void on_fault(int number, siginfo_t* info, void* context) {
  const int device = device_of(info->si_addr);
  if (device >= 0) {
    char text[200];
    const int length = snprintf(
        text, sizeof text, "emulated CUDA: the host touched memory of device %d at %p%s\n", device,
        info->si_addr, device_live(info->si_addr, 1) ? "" : ", which is not allocated");
    if (write(2, text, static_cast<size_t>(length)) < 0) _exit(1);
  }
  if ((before_segv.sa_flags & SA_SIGINFO) != 0 && before_segv.sa_sigaction != nullptr) {
    before_segv.sa_sigaction(number, info, context);
    return;
  }
  signal(number, SIG_DFL); // and again
}

void reserve() {
  static std::once_flag once;
  std::call_once(once, [] {
    void* const base = mmap(nullptr, kRange * kMostDevices, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) fault("no addresses for device memory");
    madvise(base, kRange * kMostDevices, MADV_DONTDUMP);
    for (int d = 0; d < kMostDevices; ++d) {
      Range& range = memory().range[d];
      range.base = static_cast<char*>(base) + static_cast<uint64_t>(d) * kRange;
      void* const valid = mmap(nullptr, kRange / kUnit * 2, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (valid == MAP_FAILED) fault("no addresses for device memory");
      range.valid = static_cast<uint16_t*>(valid);
    }
    reserved_base = static_cast<char*>(base);
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGSEGV, &action, &before_segv);
  });
}

void protect(const Range& range, int rights) {
  const uint64_t last = (range.cursor + kPage - 1) / kPage * kPage;
  if (last > range.low && mprotect(range.base + range.low, last - range.low, rights) != 0) {
    fault("mprotect failed");
  }
}

void set_valid(Range* range, uint64_t at, uint64_t bytes, bool live) {
  for (uint64_t unit = at / kUnit; bytes > 0; ++unit) {
    const uint64_t here = bytes < kUnit ? bytes : kUnit;
    __atomic_store_n(&range->valid[unit], static_cast<uint16_t>(live ? here : 0), __ATOMIC_RELAXED);
    bytes -= here;
  }
}

uint64_t number_from(const char* name, uint64_t otherwise) {
  const char* const text = getenv(name);
  return text == nullptr || *text == 0 ? otherwise : strtoull(text, nullptr, 10);
}

} // namespace

constinit thread_local int running_device = -1;

void fault(const char* format, ...) {
  char text[600];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  fprintf(stderr, "emulated CUDA: %s\n", text);
  fflush(stderr);
  abort();
}

int device_count() {
  const uint64_t count = number_from("CUEMU_DEVICES", 8);
  return static_cast<int>(count < kMostDevices ? count : kMostDevices);
}
uint64_t device_bytes() {
  return number_from("CUEMU_DEVICE_MB", 2048) << 20;
}

void* device_allocate(int device, uint64_t bytes) {
  reserve();
  Memory& all = memory();
  Range& range = all.range[device];
  char* start = nullptr;
  {
    const std::lock_guard<std::mutex> lock(all.mutex);
    const uint64_t taken = (bytes + kGap - 1) / kGap * kGap;
    if (range.used + taken > device_bytes()) return nullptr;
    if (range.cursor + taken + kGap > kRange) fault("device %d has used up its addresses", device);
    if (bytes >= kPage)
      range.cursor = (range.cursor + kPage - 1) / kPage * kPage; // given back whole
    start = range.base + range.cursor;
    range.cursor += taken + kGap;
    range.used += taken;
    range.live[start] = bytes;
    set_valid(&range, static_cast<uint64_t>(start - range.base), bytes, true);
  }
  close_devices(); // what was open ends where the range then did
  open_device(device);
  if (bytes <= kPoisonedWhole) memset(start, 0xff, bytes);
  close_devices();
  return start;
}

bool device_release(void* released) {
  Memory& all = memory();
  const int device = device_of(released);
  if (device < 0) return false;
  Range& range = all.range[device];
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto at = range.live.find(static_cast<char*>(released));
  if (at == range.live.end()) return false;
  const uint64_t taken = (at->second + kGap - 1) / kGap * kGap;
  set_valid(&range, static_cast<uint64_t>(at->first - range.base), at->second, false);
  const auto first = (reinterpret_cast<uintptr_t>(at->first) + kPage - 1) / kPage * kPage;
  const auto last = (reinterpret_cast<uintptr_t>(at->first) + at->second) / kPage * kPage;
  if (last > first) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
  range.used -= taken;
  range.live.erase(at);
  const uint64_t low =
      range.live.empty()
          ? range.cursor / kPage * kPage
          : static_cast<uint64_t>(range.live.begin()->first - range.base) / kPage * kPage;
  if (low > range.low) {
    madvise(range.base + range.low, low - range.low, MADV_DONTNEED);
    range.low = low;
  }
  return true;
}

uint64_t device_used(int device) {
  const std::lock_guard<std::mutex> lock(memory().mutex);
  return memory().range[device].used;
}

int device_of(const void* address) {
  const char* const base = reserved_base;
  const char* const at = static_cast<const char*>(address);
  if (base == nullptr || at < base || at >= base + kRange * kMostDevices) return -1;
  return static_cast<int>(static_cast<uint64_t>(at - base) / kRange);
}

bool device_live(const void* address, uint64_t bytes) {
  const int device = device_of(address);
  if (device < 0) return false;
  const Range& range = memory().range[device];
  uint64_t at = static_cast<uint64_t>(static_cast<const char*>(address) - range.base);
  while (bytes > 0) {
    const uint64_t inside = at % kUnit, here = bytes < kUnit - inside ? bytes : kUnit - inside;
    if (__atomic_load_n(&range.valid[at / kUnit], __ATOMIC_RELAXED) < inside + here) return false;
    at += here;
    bytes -= here;
  }
  return true;
}

void open_device(int device) {
  reserve();
  Range& range = memory().range[device];
  if (range.open) return;
  range.open = true;
  protect(range, PROT_READ | PROT_WRITE);
}

void close_devices() {
  for (Range& range : memory().range) {
    if (!range.open) continue;
    range.open = false;
    protect(range, PROT_NONE);
  }
}

bool pin(void* start, uint64_t bytes, bool owned) {
  Memory& all = memory();
  const std::lock_guard<std::mutex> lock(all.mutex);
  return all.pinned.emplace(static_cast<char*>(start), Pinned{bytes, owned}).second;
}
bool unpin(void* start, bool owned) {
  Memory& all = memory();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto at = all.pinned.find(static_cast<char*>(start));
  if (at == all.pinned.end() || at->second.owned != owned) return false;
  all.pinned.erase(at);
  return true;
}
bool pinned(const void* start, uint64_t bytes) {
  Memory& all = memory();
  const std::lock_guard<std::mutex> lock(all.mutex);
  char* const at = const_cast<char*>(static_cast<const char*>(start));
  auto next = all.pinned.upper_bound(at);
  if (next == all.pinned.begin()) return false;
  const auto& [first, block] = *std::prev(next);
  return at + bytes <= first + block.bytes;
}

void check_access(const void* address, uint64_t bytes, const char* what) {
  const int device = device_of(address);
  if (device >= 0) {
    if (device != running_device) {
      fault("a %s of a kernel on device %d at %p, memory of device %d", what, running_device,
            address, device);
    }
    if (!device_live(address, bytes)) {
      fault("a %s of %llu bytes of a kernel on device %d at %p, which is not allocated", what,
            static_cast<unsigned long long>(bytes), device, address);
    }
    return;
  }
  if (!pinned(address, bytes)) {
    fault("a %s of a kernel on device %d at %p: a host pointer", what, running_device, address);
  }
}

} // namespace cuemu
