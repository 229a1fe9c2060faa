// SPDX-License-Identifier: BSD-3-Clause
#include "engine/collective_sequence.h"

namespace zero::engine {

CollectiveSequence::CollectiveSequence(comm::Communicator& comm, device::Device& device,
                                       Failure& failure, const plan::Plan& plan, bool overlap)
    : comm_(comm),
      failure_(failure),
      plan_(plan),
      overlap_(overlap),
      ring_(std::make_unique<Slot[]>(kRing)),
      ring_reduce_ticket_(std::make_unique<uint64_t[]>(kRing)),
      ring_gather_ticket_(std::make_unique<uint64_t[]>(kRing)),
      reduce_(device.create_stream(!overlap)),
      gather_(device.create_stream(!overlap)) {
  comm_.set_namer(this);
}

CollectiveSequence::~CollectiveSequence() {
  // Nobody waits for a peer here: what is queued finds the failure and does nothing.
  if (!reduce_->done(reduce_->last_ticket()) || !gather_->done(gather_->last_ticket())) {
    try {
      failure_.record(
          Error(ZERO_ERR_COMM_ABORTED, "the runtime was destroyed with work in flight"));
    } catch (const std::bad_alloc&) {
      failure_.record_no_memory();
    }
    comm_.abort();
  }
  gather_.reset();
  reduce_.reset();
  comm_.set_namer(nullptr);
}

void CollectiveSequence::run(void* context, uint64_t, uint64_t) {
  Slot& slot = *static_cast<Slot*>(context);
  Failure& failure = slot.self->failure_;
  if (failure.failed()) return;
  try {
    slot.work(slot.context, slot.stamp);
  } catch (const Error& error) {
    failure.record(error);
    slot.self->comm_.abort();
  } catch (const std::bad_alloc&) {
    failure.record_no_memory();
    slot.self->comm_.abort();
  } catch (const std::exception& error) {
    failure.record(Error(ZERO_ERR_INTERNAL, error.what()));
    slot.self->comm_.abort();
  }
}

uint64_t CollectiveSequence::submit(device::Stream& stream, const comm::CollectiveStamp& stamp,
                                    Work work, void* context) {
  const uint64_t place = stamp.sequence % kRing;
  // The ring's earlier tenant must have run.
  if (ring_reduce_ticket_[place] != 0) reduce_->wait(ring_reduce_ticket_[place]);
  if (ring_gather_ticket_[place] != 0) gather_->wait(ring_gather_ticket_[place]);
  ring_[place] = Slot{this, work, context, stamp};
  comm_.announce(stamp);
  const uint64_t ticket = stream.submit(&CollectiveSequence::run, &ring_[place], 0, 0);
  ring_reduce_ticket_[place] = &stream == reduce_.get() ? ticket : 0;
  ring_gather_ticket_[place] = &stream == gather_.get() ? ticket : 0;
  return ticket;
}

uint64_t CollectiveSequence::reduce(int32_t bucket, uint64_t bytes, Work work, void* context) {
  comm::CollectiveStamp stamp;
  stamp.sequence = next_++;
  stamp.operation = comm::Operation::kReduceScatter;
  stamp.bucket = bucket;
  stamp.bytes = bytes;
  return submit(*reduce_, stamp, work, context);
}

uint64_t CollectiveSequence::gather(int32_t bucket_or_unit, uint64_t bytes, Work work,
                                    void* context) {
  comm::CollectiveStamp stamp;
  stamp.sequence = next_++;
  stamp.operation = comm::Operation::kGather;
  stamp.bucket = bucket_or_unit;
  stamp.bytes = bytes;
  return submit(*gather_, stamp, work, context);
}

comm::CollectiveStamp CollectiveSequence::control(comm::Operation operation, uint64_t bytes) {
  comm::CollectiveStamp stamp;
  stamp.sequence = next_++;
  stamp.operation = operation;
  stamp.bytes = bytes;
  comm_.announce(stamp);
  return stamp;
}

void CollectiveSequence::wait_reduce(uint64_t ticket) {
  reduce_->wait(ticket);
  failure_.check();
}

void CollectiveSequence::wait_gather(uint64_t ticket) {
  gather_->wait(ticket);
  failure_.check();
}

void CollectiveSequence::drain() {
  reduce_->drain();
  gather_->drain();
  failure_.check();
}

std::string CollectiveSequence::describe(const comm::CollectiveStamp& stamp) const {
  const auto name = [this](zero_param_id param) {
    return plan_.model.parameters()[static_cast<size_t>(param)].name;
  };
  if (stamp.bucket >= 0 && stamp.operation == comm::Operation::kReduceScatter &&
      stamp.bucket < static_cast<int32_t>(plan_.buckets.size())) {
    const plan::Bucket& bucket = plan_.buckets[static_cast<size_t>(stamp.bucket)];
    return format("reduce-scatter of bucket %d (%s .. %s)", bucket.number,
                  name(bucket.members.front().param).c_str(),
                  name(bucket.members.back().param).c_str());
  }
  if (stamp.bucket >= 0 && stamp.operation == comm::Operation::kGather) {
    if (plan_.placement.parameters_sharded &&
        stamp.bucket < static_cast<int32_t>(plan_.units.size())) {
      const plan::GatherUnit& unit = plan_.units[static_cast<size_t>(stamp.bucket)];
      return format("all-gather of unit %d (%s .. %s)", stamp.bucket,
                    name(unit.members.front()).c_str(), name(unit.members.back()).c_str());
    }
    if (stamp.bucket < static_cast<int32_t>(plan_.buckets.size())) {
      const plan::Bucket& bucket = plan_.buckets[static_cast<size_t>(stamp.bucket)];
      return format("all-gather of bucket %d (%s .. %s)", bucket.number,
                    name(bucket.members.front().param).c_str(),
                    name(bucket.members.back().param).c_str());
    }
  }
  return comm::operation_name(stamp.operation);
}

} // namespace zero::engine
