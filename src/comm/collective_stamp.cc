// SPDX-License-Identifier: BSD-3-Clause
#include "comm/collective_stamp.h"

#include "base/error.h"

namespace zero::comm {
namespace {

void append_difference(std::string* list, const char* name, unsigned long long a,
                       unsigned long long b) {
  if (a == b) return;
  if (!list->empty()) *list += ", ";
  *list += format("%s %llu against %llu", name, a, b);
}

} // namespace

const char* operation_name(Operation operation) {
  switch (operation) {
    case Operation::kNone:
      return "set-up";
    case Operation::kReduceScatter:
      return "reduce-scatter";
    case Operation::kGather:
      return "all-gather of shards";
    case Operation::kRecord:
      return "step record";
    case Operation::kBarrier:
      return "barrier";
    case Operation::kAllReduce:
      return "all-reduce";
    case Operation::kBroadcast:
      return "broadcast";
    case Operation::kAgree:
      return "agreement";
    case Operation::kAllGather:
      return "all-gather";
  }
  return "unknown operation";
}

bool same_stamp(const CollectiveStamp& a, const CollectiveStamp& b) {
  return a.sequence == b.sequence && a.operation == b.operation && a.bucket == b.bucket &&
         a.bytes == b.bytes && a.detail == b.detail;
}

std::string describe_stamp(const CollectiveStamp& stamp, const StampNamer* namer) {
  if (namer != nullptr) return namer->describe(stamp);
  std::string text = operation_name(stamp.operation);
  if (stamp.bucket < 0) return text;
  text += stamp.operation == Operation::kBroadcast ? " from rank " : " of bucket ";
  return text + std::to_string(stamp.bucket);
}

std::string mismatch_sentence(int32_t rank_a, const CollectiveStamp& a, int32_t rank_b,
                              const CollectiveStamp& b, const StampNamer* namer) {
  std::string list;
  append_difference(&list, "sequence number", a.sequence, b.sequence);
  if (a.operation != b.operation) {
    if (!list.empty()) list += ", ";
    list +=
        format("operation %s against %s", operation_name(a.operation), operation_name(b.operation));
  }
  if (a.bucket != b.bucket) {
    if (!list.empty()) list += ", ";
    list += format("bucket or root %d against %d", a.bucket, b.bucket);
  }
  append_difference(&list, "bytes", a.bytes, b.bytes);
  append_difference(&list, "detail", a.detail, b.detail);
  return format("ranks disagree on the collective: rank %d is in %s, rank %d is in %s (%s)", rank_a,
                describe_stamp(a, namer).c_str(), rank_b, describe_stamp(b, namer).c_str(),
                list.c_str());
}

int32_t odd_rank_out(const CollectiveStamp* stamps, int32_t count, int32_t* reference) {
  int32_t best = 0;
  int32_t best_votes = 0;
  for (int32_t i = 0; i < count; ++i) {
    int32_t votes = 0;
    for (int32_t j = 0; j < count; ++j) votes += same_stamp(stamps[i], stamps[j]) ? 1 : 0;
    if (votes > best_votes) {
      best = i;
      best_votes = votes;
    }
  }
  *reference = best;
  for (int32_t i = 0; i < count; ++i) {
    if (!same_stamp(stamps[i], stamps[best])) return i;
  }
  return -1;
}

} // namespace zero::comm
