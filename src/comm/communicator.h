// The seam between the engine and the transports.  A communicator moves bytes between ranks and
// never adds: an exchange yields one pointer a rank, and the engine's one kernel reads them.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <zero.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace zero::device {
class Device;
}

namespace zero::comm {

// Sequences that may be in flight at once, each in an order equal on all ranks.
enum class Channel : int32_t { kControl = 0, kReduce = 1, kGather = 2 };
constexpr int32_t kChannels = 3;

enum class Operation : int32_t {
  kNone = 0,
  kReduceScatter = 1, // gradients of a bucket to its owners
  kGather = 2, // shards of a bucket to all ranks
  kRecord = 3, // the step record
  kBarrier = 4,
  kAllReduce = 5, // the host program's own
  kBroadcast = 6,
  kAgree = 7, // how a collective call ended on each rank
  kAllGather = 8 // small descriptions: fingerprints, checksums
};
const char* operation_name(Operation operation);

// What a rank believes it is doing; compared between ranks, a difference is COMM_MISMATCH.
// pre: for kReduce and kGather the sequence numbers of a runtime are one sequence.
struct CollectiveStamp {
  uint64_t sequence = 0;
  Operation operation = Operation::kNone;
  int32_t bucket = -1; // the plan's number of it, or the root of a broadcast, or -1
  uint64_t bytes = 0; // each block
  uint64_t detail = 0; // dtype, reduce operation, a hash: whatever must agree
  // Of kReduceScatter: the elements' type, for a communicator that adds (see sums).  Not compared.
  zero_dtype dtype = 0;
};

enum class ExchangeKind : int32_t {
  kScatter = 0, // send has one block a rank; I see block [my rank] of every rank's
  kGather = 1 // send is one block; I see every rank's
};

// Named where an error must say what a rank was in the middle of; may be called from any thread
// while an exchange waits.  Set by the engine.
class StampNamer {
 public:
  virtual ~StampNamer() = default;
  // "reduce-scatter of bucket 3 (h.0.attn.weight .. h.0.ln_1.bias)"
  virtual std::string describe(const CollectiveStamp& stamp) const = 0;
};

// Called by one thread a channel at a time.  Every call that waits throws Error of the COMM family:
//   COMM           a peer is dead (error.rank() names it), within 2 s
//   COMM_TIMEOUT   no progress of a live peer for the time-out; names the rank waited for
//   COMM_MISMATCH  stamps differ; names a rank that differs and both stamps
//   COMM_ABORTED   abort() was called here or by a peer
// After such an error every later call throws the same one: the first error wins, on all ranks.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual zero_comm_kind kind() const = 0;
  virtual int32_t rank() const = 0;
  virtual int32_t size() const = 0;
  // Ranks on this machine, for choosing threads and whether to spin.
  virtual int32_t local_size() const = 0;
  // Channels that may really be in flight at once; fewer than 3: no overlap.
  virtual int32_t usable_channels() const = 0;
  // "" or why overlap cannot be had, for the CONFIG_CONFLICT sentence.
  virtual std::string overlap_refusal() const = 0;

  // True: exchange_begin's send must lie in memory from allocate_shared (its first use is
  // zero-filled).  False: any memory will do and allocate_shared is not needed.
  virtual bool needs_shared_memory() const = 0;
  // [collective] One region a rank; bytes may differ between ranks.  Zero-filled, 4 KiB aligned,
  // populated.  Freed with the communicator or by release_shared (local, never waits).
  virtual void* allocate_shared(uint64_t bytes) = 0;
  virtual void release_shared(void* memory) = 0;
  // Bytes of staging of its own that the communicator holds for exchanges, for the plan; the
  // same number without a communicator at hand: see staging_bytes_for.
  virtual uint64_t staging_bytes() const = 0;

  // pre: no exchange open on this channel; stamp.bytes = bytes of a block;
  //      kScatter: send holds size() blocks of stamp.bytes, block i for rank i, stride bytes apart
  //               or send is null: this rank contributes zeros, and its view may be null at all
  //      kGather: send holds one block (stride is ignored); with stamp.operation kBroadcast only
  //      the root's (stamp.bucket) block need be valid
  // views[i] (size() of them) points at what rank i contributes, valid until exchange_end.  This
  // rank's own may be send itself.  The content of send must not change until exchange_end.
  virtual void exchange_begin(Channel channel, ExchangeKind kind, const CollectiveStamp& stamp,
                              const void* send, uint64_t stride, const void** views) = 0;
  // Blocks until every peer is done with this rank's send as well.
  virtual void exchange_end(Channel channel) = 0;
  // The largest block an exchange can carry in one piece; the engine cuts longer ones.
  // UINT64_MAX where nothing is copied.
  virtual uint64_t largest_block() const = 0;

  // True: what exchanges take and yield may be memory of the device; they are ordered on the
  // calling thread's current stream (device/device.h) and need not block.  Views then are memory
  // that the device reads.  The small collectives below are of host memory and block, as elsewhere.
  virtual bool handles_device_memory() const { return false; }
  // True: a kScatter exchange with stamp.operation kReduceScatter yields views[0], the sum over
  // ranks in stamp.dtype, and null for the other ranks.
  virtual bool sums() const { return false; }
  // [collective] pre: handles_device_memory().  Element-wise sum over ranks, in place, in memory of
  // the device, on the current stream.
  virtual void sum_on_device(Channel channel, const CollectiveStamp& stamp, int64_t* values,
                             uint64_t count);

  // Tells peers, without waiting, which collective takes place `sequence` here; a peer that put
  // another one in that place makes both fail with COMM_MISMATCH.  Default: nothing.
  virtual void announce(const CollectiveStamp& stamp);
  // Null before the namer dies.  A new namer begins a new sequence: what was announced before is
  // forgotten, so all ranks set theirs between the same two collectives.
  virtual void set_namer(const StampNamer* namer) = 0;

  // Makes every blocked or later call here and at the peers throw COMM_ABORTED.  Any thread.
  virtual void abort() noexcept = 0;
  // Throws the error that ended this communicator, if one did.  Never blocks, any thread.
  virtual void check() = 0;
  // The calling rank is leaving in good order; peers waiting for it later get COMM_ABORTED saying
  // that rank R has closed its communicator.  Never waits.
  virtual void leave() noexcept = 0;

  // ---- small collectives on a channel, built on exchanges (communicator.cc) ------------------
  // recv holds size() blocks; any memory.  Cuts into pieces itself.
  virtual void all_gather(Channel channel, CollectiveStamp stamp, const void* send, void* recv,
                          uint64_t bytes_each);
  virtual void broadcast(Channel channel, CollectiveStamp stamp, void* bytes, uint64_t count,
                         int32_t root);
  virtual void barrier(Channel channel, CollectiveStamp stamp);
  // Element-wise sum over ranks, wrapping never (the caller's limbs are normalised).
  virtual void all_reduce_int64(Channel channel, CollectiveStamp stamp, int64_t* values,
                                uint64_t count);
  // In rank order; op as in zero.h.
  virtual void all_reduce_double(Channel channel, CollectiveStamp stamp, double* values,
                                 uint64_t count, zero_reduce op);

 protected:
  // Shared memory of kSmallBytes a channel for the small collectives; null where
  // needs_shared_memory() is false.  Made by each implementation at creation.
  static constexpr uint64_t kSmallBytes = 64 * 1024;
  virtual void* small_buffer(Channel channel) = 0;
};

// Staging of its own that a communicator of this kind will hold, in bytes a rank; pure.
uint64_t staging_bytes_for(zero_comm_kind kind, int32_t size);

// `host` for a runtime on `device`: blocks of device memory go through host memory that the ranks
// share, and what peers send comes back through staging of the device; every exchange blocks.
std::shared_ptr<Communicator> make_staged(std::shared_ptr<Communicator> host,
                                          device::Device& device, uint64_t segment_bytes);

// ---- makers ---------------------------------------------------------------------------------
std::shared_ptr<Communicator> make_self();
std::shared_ptr<Communicator> make_local(const std::string& group_name, int32_t rank, int32_t size,
                                         int64_t timeout_ns);
std::shared_ptr<Communicator> make_user(int32_t rank, int32_t size,
                                        const zero_comm_callbacks& callbacks, void* user_data);
// name: "", "self", "local", ...; "" or "auto": as rank and size in the environment say.  group:
// the name local ranks meet under, "" for the environment's.
std::shared_ptr<Communicator> make_from_environment(const std::string& name,
                                                    const std::string& group, int64_t timeout_ns);

// Rank and size from torchrun / `zero run`, Open MPI, PMI, SLURM; throws INVALID_ARGUMENT naming
// the variable and its value where they contradict.
struct RankEnvironment {
  int32_t rank = 0, size = 1, local_rank = 0, local_size = 1;
  std::string source; // "RANK/WORLD_SIZE", "OMPI_COMM_WORLD_*", ..., "" when none is set
  std::string job; // what ranks of one job share: LIBZERO_JOB, TORCHELASTIC_RUN_ID, ...
};
RankEnvironment read_rank_environment();

} // namespace zero::comm
