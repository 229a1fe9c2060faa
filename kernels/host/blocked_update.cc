// What is not fp32 is widened into arrays on the stack, updated there and rounded back, a block of
// some thousand elements at a time, so that only the narrow streams meet the memory.
// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/host/blocked_update.h"

#include <algorithm>

#include "kernels/host/half_numbers.h"

namespace zero::kernels {

namespace {

constexpr uint64_t kBlock = 2048; // three arrays of it stay in the first cache
static_assert(kBlock % 32 == 0); // a word of ties

constexpr uint32_t kTie = 0x8000;

uint64_t size_of(zero_dtype dtype) {
  return dtype == ZERO_DTYPE_FP32 ? 4 : 2;
}

void* at(void* stream, zero_dtype dtype, uint64_t index) {
  return stream == nullptr ? nullptr : static_cast<char*>(stream) + index * size_of(dtype);
}

const void* at(const void* stream, zero_dtype dtype, uint64_t index) {
  return static_cast<const char*>(stream) + index * size_of(dtype);
}

// Written without branches, so that compilers make vectors of the loops around them.

// 1 where bits lie half a place above an even parameter, which may be zero.
uint32_t is_upper_end(uint32_t bits) {
  return static_cast<uint32_t>((bits & 0x1ffffu) == kTie);
}

uint32_t joined(uint32_t model, uint32_t remainder) {
  const uint32_t magnitude = model & 0x7fffu;
  // Of zero only the upper end exists: the lower would have the other sign.  A NaN is not rounded.
  const uint32_t lowest = kTie + static_cast<uint32_t>(magnitude == 0);
  const uint32_t rounded_up =
      static_cast<uint32_t>(remainder >= lowest) & static_cast<uint32_t>(magnitude <= 0x7f80u);
  return ((model << 16) | remainder) - (rounded_up << 16);
}

[[gnu::always_inline]] inline void keep_body(const float* master, uint16_t* remainder,
                                             uint32_t* ties, uint64_t count) {
  if (ties == nullptr) { // one unit nearer
    for (uint64_t i = 0; i < count; i++) {
      const uint32_t bits = bits_of(master[i]);
      const uint32_t nearer = is_upper_end(bits) & static_cast<uint32_t>((bits << 1 >> 17) != 0);
      remainder[i] = static_cast<uint16_t>(bits - nearer);
    }
    return;
  }
  for (uint64_t i = 0; i < count; i++) remainder[i] = static_cast<uint16_t>(bits_of(master[i]));
  for (uint64_t begin = 0; begin < count; begin += 32) {
    const uint64_t n = std::min<uint64_t>(count - begin, 32);
    uint32_t any = 0;
    for (uint64_t i = 0; i < n; i++) any |= is_upper_end(bits_of(master[begin + i]));
    uint32_t word = 0;
    for (uint64_t i = 0; i < n && any != 0; i++) { // rare
      word |= is_upper_end(bits_of(master[begin + i])) << i;
    }
    ties[begin / 32] = word;
  }
}

[[gnu::always_inline]] inline void join_body(const uint16_t* model, const uint16_t* remainder,
                                             float* master, uint64_t count) {
  for (uint64_t i = 0; i < count; i++) master[i] = float_of(joined(model[i], remainder[i]));
}

#if defined(__x86_64__)
// The same loops in longer vectors: integers only, so no bit can differ.
[[gnu::target("avx2")]] void keep_in_avx2(const float* master, uint16_t* remainder, uint32_t* ties,
                                          uint64_t count) {
  keep_body(master, remainder, ties, count);
}
[[gnu::target("avx2")]] void join_in_avx2(const uint16_t* model, const uint16_t* remainder,
                                          float* master, uint64_t count) {
  join_body(model, remainder, master, count);
}
#endif

void keep_remainder(const float* master, uint16_t* remainder, uint32_t* ties, uint64_t count) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return keep_in_avx2(master, remainder, ties, count);
#endif
  keep_body(master, remainder, ties, count);
}

void join_halves(const uint16_t* model, const uint16_t* remainder, float* master, uint64_t count) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return join_in_avx2(model, remainder, master, count);
#endif
  join_body(model, remainder, master, count);
}

void update_block(const KernelTable& table, const WideStreams& s, uint64_t first, uint64_t count,
                  BlockUpdate update, const void* constants) {
  alignas(64) float wide_master[kBlock];
  alignas(64) float wide_state[2][kBlock];
  UpdateStreams block;
  block.count = count;
  block.grad = at(s.grad, s.grad_dtype, first);
  block.grad_dtype = s.grad_dtype;
  void* const model = at(s.model, s.model_dtype, first);
  void* const master = at(s.master, s.master_dtype, first);
  uint32_t* const ties = s.ties == nullptr ? nullptr : s.ties + first / 32;
  block.model_dtype = s.model_dtype;
  const bool narrow_master = s.remainder == nullptr && s.master_dtype != ZERO_DTYPE_FP32;
  if (s.remainder != nullptr) {
    join_master(static_cast<const uint16_t*>(model), s.remainder + first, ties, wide_master, count);
  } else if (narrow_master) {
    table.cast(master, s.master_dtype, wide_master, ZERO_DTYPE_FP32, count);
  }
  block.master =
      s.remainder != nullptr || narrow_master ? wide_master : static_cast<float*>(master);
  if (!narrow_master) block.model = model; // else it is the stored master that is rounded
  const bool narrow_states = s.state_dtype != ZERO_DTYPE_FP32;
  for (int k = 0; k < 2; k++) {
    void* const state = at(s.state[k], s.state_dtype, first);
    if (state == nullptr) continue;
    block.state[k] = narrow_states ? wide_state[k] : static_cast<float*>(state);
    if (narrow_states) table.cast(state, s.state_dtype, wide_state[k], ZERO_DTYPE_FP32, count);
  }

  update(table, block, constants);

  for (int k = 0; k < 2 && narrow_states; k++) {
    void* const state = at(s.state[k], s.state_dtype, first);
    if (state == nullptr) continue;
    table.cast(wide_state[k], ZERO_DTYPE_FP32, state, s.state_dtype, count);
  }
  if (s.remainder != nullptr) keep_remainder(wide_master, s.remainder + first, ties, count);
  if (!narrow_master) return;
  table.cast(wide_master, ZERO_DTYPE_FP32, master, s.master_dtype, count);
  if (model != nullptr) table.cast(master, s.master_dtype, model, s.model_dtype, count);
}

} // namespace

void split_master(const float* master, uint16_t* model, uint16_t* remainder, uint32_t* ties,
                  uint64_t count) {
  for (uint64_t i = 0; i < count; i++) model[i] = bf16_from_float(master[i]);
  keep_remainder(master, remainder, ties, count);
}

void join_master(const uint16_t* model, const uint16_t* remainder, const uint32_t* ties,
                 float* master, uint64_t count) {
  join_halves(model, remainder, master, count);
  if (ties == nullptr) return;
  for (uint64_t word = 0; word * 32 < count; word++) {
    for (uint32_t bits = ties[word]; bits != 0; bits &= bits - 1) { // rare
      const uint64_t i = word * 32 + static_cast<uint64_t>(__builtin_ctz(bits));
      if (i < count) master[i] = float_of((static_cast<uint32_t>(model[i]) << 16) | kTie);
    }
  }
}

void update_blocked(const KernelTable& table, const WideStreams& streams, BlockUpdate update,
                    const void* constants) {
  for (uint64_t first = 0; first < streams.count; first += kBlock) {
    const uint64_t count = std::min(streams.count - first, kBlock);
    update_block(table, streams, first, count, update, constants);
  }
}

} // namespace zero::kernels
