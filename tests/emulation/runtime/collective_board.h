// What the ranks of an emulated NCCL communicator share, threads or processes: a file in memory on
// which each rank posts what it sends and reads what the others have posted.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <nccl.h>

#include <atomic>
#include <cstdint>
#include <string>

namespace cuemu {

constexpr int kMostRanks = 16;
constexpr uint64_t kPostBytes = UINT64_C(512) << 20; // sparse: what is not written is not there
constexpr uint64_t kPairBytes = UINT64_C(64) << 20;

struct Move {
  enum Kind : int32_t { kAllReduce, kBroadcast, kReduceScatter, kAllGather, kSend, kRecv };
  Kind kind;
  ncclDataType_t type;
  ncclRedOp_t op;
  int32_t peer; // or root
  uint64_t count;
  bool operator==(const Move&) const = default;
};

class Board {
 public:
  // Waits for nobody: attached() says how many have come.
  Board(const std::string& name, int ranks, int rank, int device);
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  int ranks() const { return ranks_; }
  int attached() const { return header_->attached.load(); }
  bool device_taken_twice() const;

  // Sequence numbers count from 1 for collectives, and for each pair.
  bool may_post(uint64_t sequence) const;
  void post(uint64_t sequence, const Move& move, const void* from, uint64_t bytes);
  bool all_posted(uint64_t sequence) const;
  bool all_agree() const; // once all have posted
  const char* posted(int rank) const { return data_ + static_cast<uint64_t>(rank) * kPostBytes; }
  void finish(uint64_t sequence) { header_->rank[rank_].finished.store(sequence); }

  bool may_send(int peer, uint64_t sequence) const;
  void send(int peer, uint64_t sequence, const void* from, uint64_t bytes);
  bool may_receive(int peer, uint64_t sequence, uint64_t bytes) const;
  void receive(int peer, uint64_t sequence, void* to, uint64_t bytes);

  // Whether another rank waits for something of this one.
  bool wanted() const;

  // Colours and keys of a split, by its number; true once all are there.
  void split_post(uint64_t number, int color, int key);
  bool split_ready(uint64_t number) const;
  void split_of(int rank, int* color, int* key) const;

 private:
  struct Rank {
    std::atomic<uint64_t> posted, finished, split;
    Move move;
    int32_t device, color, key;
  };
  struct Pair {
    std::atomic<uint64_t> sent, received;
    uint64_t bytes;
  };
  struct Header {
    std::atomic<int32_t> attached;
    Rank rank[kMostRanks];
    Pair pair[kMostRanks][kMostRanks]; // from, to
  };
  char* pair_data(int from, int to) const;

  int ranks_, rank_;
  uint64_t bytes_;
  Header* header_;
  char* data_;
};

uint64_t type_bytes(ncclDataType_t type);
// Elements [first, first + count) of every rank's posted array, `stride` bytes in for this part:
// added from the rank after `owner` on, round the ring, rounded at each hop as NCCL's rings do.
void reduce_posted(const Board& board, const Move& move, int owner, uint64_t first, uint64_t count,
                   void* to);

} // namespace cuemu
