// What the tests of the CUDA kernels share: arrays in device memory, and the table.  The same tests
// run in the emulation and on a GPU.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "kernel_cases.h"
#include "kernels/cuda/cuda_kernels.h"

namespace cuda_cases {

using namespace kernel_cases;

inline const CudaKernelTable& table() {
  const CudaKernelTable* const kernels = zero_cuda_kernels(kCudaKernelsVersion);
  assert_non_null(kernels);
  return *kernels;
}

inline bool is_tier(const char* wanted) {
  const char* const tier = std::getenv("LIBZERO_TEST_TIER");
  return tier != nullptr && std::strcmp(tier, wanted) == 0;
}
// False where a program belongs to another tier; it then ends with 77.
inline bool belongs_to_the_tier() {
  const char* const needed = std::getenv("LIBZERO_NEEDS_TIER");
  return needed == nullptr || is_tier(needed);
}

// Whether a sanitizer watches the memory: then arrays are as long as they say, else guards are.
#if defined(__SANITIZE_ADDRESS__)
constexpr uint64_t kGuardBytes = 0;
#else
constexpr uint64_t kGuardBytes = 64;
#endif
// ThreadSanitizer's fibers are slow: there, threads and blocks matter and not every number.
#if defined(__SANITIZE_THREAD__)
constexpr bool kFewCases = true;
#else
constexpr bool kFewCases = false;
#endif

// Of long lists, every how many-th case is run: all of them, but for ThreadSanitizer's quick tier.
inline uint64_t every(uint64_t few) {
  return kFewCases && !is_tier("full") ? few : 1;
}

inline void succeeded(int32_t status) {
  if (status != 0) fail_msg("a launch returned cudaError %d", status);
}

// Bytes in device memory, `offset` behind an aligned address, between guards.
class DeviceBytes {
 public:
  DeviceBytes(const void* from, uint64_t bytes, uint64_t offset = 0)
      : bytes_(bytes), front_(kGuardBytes + offset) {
    assert_int_equal(cudaMalloc(&memory_, total() != 0 ? total() : 1), cudaSuccess);
    std::vector<uint8_t> all(total(), kFill);
    if (bytes != 0) std::memcpy(all.data() + front_, from, bytes);
    if (total() != 0) copy(memory_, all.data(), total(), cudaMemcpyHostToDevice);
  }
  ~DeviceBytes() { cudaFree(memory_); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;

  void* data() const { return static_cast<char*>(memory_) + front_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data());
  }
  void upload(const void* from) { copy(data(), from, bytes_, cudaMemcpyHostToDevice); }
  void download(void* to) const {
    assert_int_equal(cudaDeviceSynchronize(), cudaSuccess);
    if (bytes_ != 0) copy(to, data(), bytes_, cudaMemcpyDeviceToHost);
  }
  bool guards_hold() const {
    std::vector<uint8_t> all(total());
    if (total() != 0) copy(all.data(), memory_, total(), cudaMemcpyDeviceToHost);
    for (uint64_t i = 0; i < total(); i++) {
      if ((i < front_ || i >= front_ + bytes_) && all[i] != kFill) return false;
    }
    return true;
  }

 private:
  static constexpr uint8_t kFill = 0xa5;
  static void copy(void* to, const void* from, uint64_t bytes, cudaMemcpyKind kind) {
    assert_int_equal(cudaMemcpy(to, from, bytes, kind), cudaSuccess);
  }
  uint64_t total() const { return front_ + bytes_ + kGuardBytes; }

  void* memory_ = nullptr;
  uint64_t bytes_, front_;
};

// A copy of a host array on the device.
class DeviceArray {
 public:
  explicit DeviceArray(const Array& host, uint64_t offset = 0)
      : dtype_(host.dtype()),
        count_(host.count()),
        bytes_(host.data(), count_ * size_of(dtype_), offset * size_of(dtype_)) {}
  void* data() const { return bytes_.data(); }
  float* floats() const { return bytes_.as<float>(); }
  Array back() const {
    Array host(dtype_, count_);
    bytes_.download(host.data());
    return host;
  }
  // Fails unless the device's array is as it should be.
  void assert_is(const std::string& what, const Array& wanted, Nan nan = Nan::kAny) const {
    assert_same(what.c_str(), wanted, back(), nan);
    if (!bytes_.guards_hold()) fail_msg("%s: the device wrote outside its array", what.c_str());
  }

 private:
  zero_dtype dtype_;
  uint64_t count_;
  DeviceBytes bytes_;
};

template <typename T>
class DeviceValues {
 public:
  explicit DeviceValues(const std::vector<T>& values)
      : count_(values.size()), bytes_(values.data(), values.size() * sizeof(T)) {}
  explicit DeviceValues(const T& value) : count_(1), bytes_(&value, sizeof(T)) {}
  T* data() const { return bytes_.as<T>(); }
  void upload(const T& value) { bytes_.upload(&value); }
  std::vector<T> back() const {
    std::vector<T> values(count_);
    bytes_.download(values.data());
    return values;
  }

 private:
  uint64_t count_;
  DeviceBytes bytes_;
};

inline Array random_array(zero_dtype dtype, uint64_t count, Numbers numbers, uint64_t seed) {
  Random random(seed);
  Array array(dtype, count);
  array.fill(random, numbers);
  return array;
}

// Tiles of `size` elements over count, their parameters 0, 1, 2, 0, 1, ...
inline std::vector<CudaTile> cut(uint64_t count, uint32_t size, int32_t params) {
  std::vector<CudaTile> tiles;
  for (uint64_t at = 0; at < count; at += size) {
    CudaTile tile;
    tile.at = at;
    tile.count = static_cast<uint32_t>(count - at < size ? count - at : size);
    tile.param = static_cast<int32_t>(tiles.size()) % params;
    tiles.push_back(tile);
  }
  return tiles;
}

// Of few chunks and of many, tiny and huge, or of none.
inline ExactSum random_sum(Random& random) {
  ExactSum sum;
  exact_sum_clear(&sum);
  const uint64_t chunks = random.below(5) == 0 ? 0 : 1 + random.below(40);
  for (uint64_t i = 0; i < chunks; i++) {
    const float value = random.finite();
    exact_sum_add(&sum, static_cast<double>(value) * value);
  }
  return sum;
}

} // namespace cuda_cases
