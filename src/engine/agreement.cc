// SPDX-License-Identifier: BSD-3-Clause
#include "engine/agreement.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>

namespace zero::engine {
namespace {

struct Verdict {
  int32_t status;
  int32_t rank;
  int32_t native_code;
  char origin[28];
  char text[984];
};

comm::CollectiveStamp stamp_of(comm::Operation operation, uint64_t bytes, uint64_t step) {
  comm::CollectiveStamp stamp;
  stamp.operation = operation;
  stamp.bytes = bytes;
  stamp.detail = step;
  return stamp;
}

void put(char* out, size_t capacity, const std::string& text) {
  const size_t length = std::min(capacity - 1, text.size());
  std::memcpy(out, text.data(), length);
  out[length] = '\0';
}

// The first line that differs from rank 0's, as a sentence; "" where none does.
std::string first_difference(const std::string& theirs, const std::vector<std::string>& mine,
                             const char* what, int32_t rank) {
  size_t begin = 0;
  for (size_t i = 0;; ++i) {
    const bool more_theirs = begin < theirs.size();
    const bool more_mine = i < mine.size();
    if (!more_theirs && !more_mine) return {};
    const size_t end = more_theirs ? theirs.find('\n', begin) : begin;
    const std::string line = more_theirs ? theirs.substr(begin, end - begin) : "nothing";
    const std::string own = more_mine ? mine[i] : "nothing";
    if (line != own) {
      return format(
          "rank %d and rank 0 bring different %s; first difference at %zu: %s on rank %d, %s "
          "on rank 0",
          rank, what, i, own.substr(0, 300).c_str(), rank, line.substr(0, 300).c_str());
    }
    begin = end + 1;
  }
}

} // namespace

void agree(comm::Communicator& comm, uint64_t step, const Error* mine) {
  Verdict verdict{};
  verdict.rank = comm.rank();
  if (mine != nullptr) {
    verdict.status = mine->status();
    verdict.native_code = mine->native_code();
    if (mine->rank() >= 0) verdict.rank = mine->rank();
    put(verdict.origin, sizeof(verdict.origin), mine->origin());
    put(verdict.text, sizeof(verdict.text), mine->message());
  }
  std::vector<Verdict> all(static_cast<size_t>(comm.size()));
  comm.all_gather(comm::Channel::kControl, stamp_of(comm::Operation::kAgree, sizeof(Verdict), step),
                  &verdict, all.data(), sizeof(Verdict));
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r].status == ZERO_OK) continue;
    if (mine != nullptr && static_cast<int32_t>(r) == comm.rank()) throw *mine;
    const std::string said = comm.size() > 1 ? format("rank %zu: ", r) : std::string();
    throw Error(all[r].status, said + all[r].text, all[r].rank, all[r].native_code, all[r].origin);
  }
}

void agree_on_lines(comm::Communicator& comm, uint64_t step, const char* what,
                    const std::vector<std::string>& lines) {
  std::string mine;
  for (const std::string& line : lines) mine += line + "\n";
  struct Summary {
    uint64_t hash, bytes;
  } summary{XXH3_64bits(mine.data(), mine.size()), mine.size()};
  std::vector<Summary> all(static_cast<size_t>(comm.size()));
  comm.all_gather(comm::Channel::kControl,
                  stamp_of(comm::Operation::kAllGather, sizeof(Summary), step), &summary,
                  all.data(), sizeof(Summary));
  const bool equal = std::all_of(all.begin(), all.end(), [&](const Summary& other) {
    return other.hash == all[0].hash && other.bytes == all[0].bytes;
  });
  if (equal) return;
  std::string rank0 = mine;
  rank0.resize(all[0].bytes);
  comm.broadcast(comm::Channel::kControl, stamp_of(comm::Operation::kBroadcast, 0, step),
                 rank0.data(), rank0.size(), 0);
  const std::string difference = first_difference(rank0, lines, what, comm.rank());
  if (difference.empty()) {
    agree(comm, step, nullptr);
  } else {
    const Error error(ZERO_ERR_COMM_MISMATCH, difference, comm.rank());
    agree(comm, step, &error);
  }
}

} // namespace zero::engine
