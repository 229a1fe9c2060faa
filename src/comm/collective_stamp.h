// What two ranks believe they are doing: equality, and the sentence for when they differ.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "comm/communicator.h"

namespace zero::comm {

bool same_stamp(const CollectiveStamp& a, const CollectiveStamp& b);

// The namer's words, or "reduce-scatter of bucket 3" where there is none.
std::string describe_stamp(const CollectiveStamp& stamp, const StampNamer* namer);

// "ranks disagree: rank 2 is in A, rank 0 is in B (bytes 4096 against 8192)"
std::string mismatch_sentence(int32_t rank_a, const CollectiveStamp& a, int32_t rank_b,
                              const CollectiveStamp& b, const StampNamer* namer);

// The lowest rank whose stamp differs from that of most ranks; at a tie, from that of the lowest
// rank.  -1 where all agree.  *reference is a rank of the majority.
int32_t odd_rank_out(const CollectiveStamp* stamps, int32_t count, int32_t* reference);

} // namespace zero::comm
