// The memory of emulated devices: ranges that host code cannot touch, byte-exact about what is
// allocated, and the pinned host memory beside them.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

namespace cuemu {

constexpr int kMostDevices = 16;

int device_count(); // CUEMU_DEVICES, 8 unless it says otherwise
uint64_t device_bytes(); // CUEMU_DEVICE_MB, 2048 MiB unless it says otherwise

// Null where the device is full.  The content is all ones: NaN.
void* device_allocate(int device, uint64_t bytes);
bool device_release(void* memory); // false: not the start of a live allocation
uint64_t device_used(int device);
// The device whose range this address is in, else -1; whether [memory, memory + bytes) is live.
int device_of(const void* memory);
bool device_live(const void* memory, uint64_t bytes);

// While a device is open, code of this process can touch its memory.  Under the machine's lock.
void open_device(int device);
void close_devices();

bool pin(void* memory, uint64_t bytes, bool owned); // false: already
bool unpin(void* memory, bool owned);
bool pinned(const void* memory, uint64_t bytes);

// Says what went wrong and ends the process: what a GPU would do is undefined, or worse.
[[noreturn]] void fault(const char* format, ...) __attribute__((format(printf, 1, 2)));

// For every access of a kernel; never returns where it is wrong.  what: "load" or "store".
void check_access(const void* memory, uint64_t bytes, const char* what);
// The device whose kernel runs on this thread.
extern constinit thread_local int running_device;

} // namespace cuemu
