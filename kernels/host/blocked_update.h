// Fused updates of streams that the kernels do not take as they are: masters and states of 16 bits,
// and a master kept as its bf16 parameter and a remainder.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "kernels/kernels.h"

namespace zero::kernels {

// The remainder of an fp32 master M of a bf16 parameter h, h being M rounded to nearest even, is
// the low half of M's bits; h and the remainder tell the high half: it is h's bits, less one where
// M was rounded up, that is where the remainder is above 0x8000.
//
// 16 bits cannot always do: of an even h the masters lie from half a place below to half a place
// above, both ends included, which are 65,537 (an odd h has 65,535, and cannot lend its spare code:
// h is what it is).  The two ends share the remainder 0x8000.  So, per element:
//  - with ties, a bitmap of one bit an element, the bit says which end it is and the master is
//    exact, always (2 1/8 bytes in place of 4);
//  - without, 0x8000 is the lower end, and a master at the upper end is kept one fp32 unit of the
//    last place nearer to h (remainder 0x7fff).  h itself is always the right one; the master is
//    off by 2^-23 of itself, at most, once in some 131,000 updates of an element.  No scheme of 16
//    bits does better: one of the 65,537 has to take another's code, and the nearest other is one
//    unit away.  (Of h = 0 there are 32,769, all exact.)
// A NaN stays a NaN.
struct WideStreams {
  // fp32, bf16 or fp16; null where remainder is given.
  void* master = nullptr;
  zero_dtype master_dtype = ZERO_DTYPE_FP32;
  // Where given, model is bf16, is read too, and holds what the last update wrote.
  uint16_t* remainder = nullptr;
  // May be null where master is not.  The rounding of the master as stored.
  void* model = nullptr;
  zero_dtype model_dtype = ZERO_DTYPE_FP32;
  const void* grad = nullptr;
  zero_dtype grad_dtype = ZERO_DTYPE_FP32;
  void* state[2] = {nullptr, nullptr}; // null where the rule has none
  zero_dtype state_dtype = ZERO_DTYPE_FP32;
  uint64_t count = 0;
  // With remainder, or null: bit i % 32 of word i / 32 is element i's.
  uint32_t* ties = nullptr;
};

// Calls the table's kernel for one block, with the constants of update_blocked.  Its grad points
// into the whole gradient, which is how a rule with a direction finds the block's part of it.
using BlockUpdate = void (*)(const KernelTable& table, const UpdateStreams& streams,
                             const void* constants);

// The same bits as the fp32 kernel between widening and rounding (to nearest even) of what is
// narrow, wherever a range is split at multiples of 32.
void update_blocked(const KernelTable& table, const WideStreams& streams, BlockUpdate update,
                    const void* constants);

// model = master rounded, remainder (and ties, or null) what completes it; a first master, or one
// that was read from a checkpoint.
void split_master(const float* master, uint16_t* model, uint16_t* remainder, uint32_t* ties,
                  uint64_t count);
// The fp32 master of the two (or three).
void join_master(const uint16_t* model, const uint16_t* remainder, const uint32_t* ties,
                 float* master, uint64_t count);

} // namespace zero::kernels
