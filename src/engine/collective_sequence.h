// The one sequence of collectives and the two streams that carry it out (architecture section 4).
// Every collective of a runtime gets its place here, on the thread that calls libzero, in an order
// equal on all ranks; the streams then run reduces and gathers, each in that order.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include "comm/communicator.h"
#include "device/device.h"
#include "engine/failure.h"
#include "plan/plan.h"

namespace zero::engine {

class CollectiveSequence : public comm::StampNamer {
 public:
  // A collective's work: runs on its stream, may throw Error; the runtime is then failed.
  using Work = void (*)(void* context, const comm::CollectiveStamp& stamp);

  CollectiveSequence(comm::Communicator& comm, device::Device& device, Failure& failure,
                     const plan::Plan& plan, bool overlap);
  ~CollectiveSequence() override;

  // Takes the next place and returns the ticket on the stream.  pre: under the caller's lock; one
  // thread at a time.  work, context outlive the run.
  uint64_t reduce(int32_t bucket, uint64_t bytes, Work work, void* context);
  uint64_t gather(int32_t bucket_or_unit, uint64_t bytes, Work work, void* context);
  // For a collective on the control channel, made by the caller itself.
  comm::CollectiveStamp control(comm::Operation operation, uint64_t bytes);

  // Return when it has run; then throw if the runtime has failed.
  void wait_reduce(uint64_t ticket);
  void wait_gather(uint64_t ticket);
  void drain();
  bool overlaps() const { return overlap_; }

  std::string describe(const comm::CollectiveStamp& stamp) const override;

 private:
  struct Slot { // what a queued task needs; a ring, so that nothing is allocated
    CollectiveSequence* self;
    Work work;
    void* context;
    comm::CollectiveStamp stamp;
  };
  static constexpr uint64_t kRing = 8192;
  static void run(void* context, uint64_t first, uint64_t second);
  uint64_t submit(device::Stream& stream, const comm::CollectiveStamp& stamp, Work work,
                  void* context);

  comm::Communicator& comm_;
  Failure& failure_;
  const plan::Plan& plan_;
  const bool overlap_;
  uint64_t next_ = 1;
  std::unique_ptr<Slot[]> ring_;
  std::unique_ptr<uint64_t[]> ring_reduce_ticket_, ring_gather_ticket_;
  std::unique_ptr<device::Stream> reduce_, gather_;
};

} // namespace zero::engine
