// SPDX-License-Identifier: BSD-3-Clause
#include "comm/nccl_comm.h"

#include <algorithm>
#include <chrono>

#include "base/checked.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "comm/progress_watch.h"
#include "device/cuda_plugin.h"

namespace zero::comm {
namespace {

constexpr uint64_t kAlign = 256; // of a block in staging
constexpr auto kLookEvery = std::chrono::milliseconds(50);
constexpr auto kNap = std::chrono::microseconds(200);
constexpr int kWindowSymmetric = 1;

int32_t nccl_type(zero_dtype dtype) {
  switch (dtype) {
    case ZERO_DTYPE_FP32:
      return kNcclFloat;
    case ZERO_DTYPE_BF16:
      return kNcclBfloat16;
    case ZERO_DTYPE_FP16:
      return kNcclHalf;
    default:
      fail(ZERO_ERR_INTERNAL, "NCCL was to add values of dtype %d", dtype);
  }
}

} // namespace

NcclCommunicator::NcclCommunicator(std::shared_ptr<Communicator> host, device::Device& device,
                                   const NcclOptions& options)
    : DeviceComm(std::move(host)),
      device_(device),
      nccl_(nccl_library()),
      rank_order_(options.rank_order),
      segment_bytes_(round_up(options.segment_bytes, kAlign)),
      timeout_ns_(options.timeout_ns > 0 ? options.timeout_ns : kDefaultTimeoutNs),
      launches_(kLaunches) {
  const device::CurrentDevice current(device_.ordinal());
  connect(options.split_from);
  try {
    for (Segment& segment : segments_) {
      segment.sent = allocate_segment();
      segment.came = allocate_segment();
      segment.ended = device_.create_event();
      if (nccl_.window_register != nullptr && !own_memory_.empty()) {
        settle(nccl_.window_register(comm_, segment.came, segment_bytes_, &segment.window,
                                     kWindowSymmetric),
               "ncclCommWindowRegister");
      }
    }
    for (Launch& launch : launches_) launch.event = device_.create_event();
    watcher_ = std::thread([this] { watch(); });
  } catch (...) {
    nccl_.abort(comm_);
    free_segments();
    throw;
  }
}

// Non-blocking, so that a rank that never comes ends in a time-out here and not in a hang.
void NcclCommunicator::connect(void* split_from) {
  NcclConfig config;
  CollectiveStamp stamp;
  stamp.operation = Operation::kBroadcast;
  stamp.bucket = 0;
  stamp.bytes = sizeof(NcclUniqueId);
  if (split_from != nullptr) {
    int ranks = 0, place = 0, ordinal = -1;
    nccl_.count(split_from, &ranks);
    nccl_.user_rank(split_from, &place);
    nccl_.device(split_from, &ordinal);
    if (ranks != size() || place != rank() || ordinal != device_.ordinal()) {
      fail(ZERO_ERR_INVALID_ARGUMENT,
           "the NCCL communicator is rank %d of %d on device %d, expected rank %d of %d on device "
           "%d",
           place, ranks, ordinal, rank(), size(), device_.ordinal());
    }
    return settle(nccl_.split(split_from, 0, rank(), &comm_, &config), "ncclCommSplit");
  }
  NcclUniqueId id{};
  int32_t made = kNcclSuccess;
  if (rank() == 0) made = nccl_.get_unique_id(&id);
  // Whether there is one is known to all before anybody waits in NCCL.
  double result = made;
  host().all_reduce_double(Channel::kControl, stamp, &result, 1, ZERO_REDUCE_MAX);
  settle(static_cast<int32_t>(result), "ncclGetUniqueId");
  host().broadcast(Channel::kControl, stamp, &id, sizeof(id), 0);
  settle(nccl_.init_rank(&comm_, size(), id, rank(), &config), "ncclCommInitRankConfig");
}

NcclCommunicator::~NcclCommunicator() {
  {
    const std::lock_guard<std::mutex> lock(watched_);
    leaving_ = true;
  }
  wake_.notify_all();
  watcher_.join();
  const device::CurrentDevice current(device_.ordinal());
  bool idle = !aborted_;
  for (size_t i = 0; idle && i < launch_count_; ++i) {
    idle = launches_[(first_launch_ + i) % kLaunches].event->done();
  }
  if (!aborted_ && nccl_.window_deregister != nullptr && idle) {
    for (Segment& segment : segments_) {
      if (segment.window != nullptr) nccl_.window_deregister(comm_, segment.window);
    }
  }
  // Destroying waits for the peers' part of what is in flight; aborting does not.
  if (!aborted_) idle ? nccl_.destroy(comm_) : nccl_.abort(comm_);
  free_segments();
}

std::byte* NcclCommunicator::allocate_segment() {
  void* memory = nullptr;
  if (nccl_.mem_alloc != nullptr && nccl_.mem_free != nullptr &&
      nccl_.mem_alloc(&memory, segment_bytes_) == kNcclSuccess) {
    own_memory_.push_back(memory);
    return static_cast<std::byte*>(memory);
  }
  return static_cast<std::byte*>(device_.allocate(segment_bytes_));
}

void NcclCommunicator::free_segments() noexcept {
  for (Segment& segment : segments_) {
    for (void* memory : {segment.sent, segment.came}) {
      if (memory == nullptr) continue;
      const bool own =
          std::find(own_memory_.begin(), own_memory_.end(), memory) != own_memory_.end();
      if (own) {
        nccl_.mem_free(memory);
      } else {
        device_.release(memory, segment_bytes_);
      }
    }
  }
}

void NcclCommunicator::settle(int32_t result, const char* call) {
  const int64_t start = now_ns();
  while (result == kNcclInProgress && comm_ != nullptr) {
    host().check();
    if (now_ns() - start >= timeout_ns_) {
      throw Error(ZERO_ERR_COMM_TIMEOUT, format("%s has been in progress for %lld ms", call,
                                                static_cast<long long>(timeout_ns_ / 1000000)));
    }
    std::this_thread::sleep_for(kNap);
    const int32_t asked = nccl_.async_error(comm_, &result);
    if (asked != kNcclSuccess) result = asked;
  }
  if (result == kNcclSuccess) return;
  const char* const more = nccl_.last_error == nullptr ? "" : nccl_.last_error(comm_);
  throw Error(ZERO_ERR_COMM,
              format("%s: %s%s%s", call, nccl_.error_string(result),
                     more == nullptr || *more == '\0' ? "" : ": ", more == nullptr ? "" : more),
              -1, result, "nccl");
}

uint64_t NcclCommunicator::largest_block() const {
  return segment_bytes_ / static_cast<uint64_t>(size()) / kAlign * kAlign;
}

void NcclCommunicator::exchange_begin(Channel channel, ExchangeKind kind,
                                      const CollectiveStamp& stamp, const void* send,
                                      uint64_t stride, const void** views) {
  check();
  if (stamp.bytes > largest_block()) {
    fail(ZERO_ERR_INTERNAL, "a block of %llu bytes was to be exchanged, expected at most %llu",
         static_cast<unsigned long long>(stamp.bytes),
         static_cast<unsigned long long>(largest_block()));
  }
  std::fill(views, views + size(), nullptr);
  const device::CurrentDevice current(device_.ordinal());
  Segment& here = segment(channel);
  here.ended->wait(); // who read the staging last, on whichever stream
  {
    const std::lock_guard<std::mutex> lock(launching_);
    if (kind == ExchangeKind::kGather) {
      gather(here, stamp, send, views);
    } else if (sums() && stamp.operation == Operation::kReduceScatter) {
      reduce_scatter(here, stamp, send, stride, views);
    } else {
      all_to_all(here, stamp, send, stride, views);
    }
  }
  note_launch(stamp);
}

void NcclCommunicator::exchange_end(Channel channel) {
  segment(channel).ended->record();
}

void NcclCommunicator::reduce_scatter(Segment& here, const CollectiveStamp& stamp, const void* send,
                                      uint64_t stride, const void** views) {
  const auto ranks = static_cast<uint64_t>(size());
  const void* packed = send;
  if (send == nullptr) {
    device_.fill(here.sent, 0, ranks * stamp.bytes);
    packed = here.sent;
  } else if (stride != stamp.bytes) {
    for (uint64_t r = 0; r < ranks; ++r) {
      device_.copy(here.sent + r * stamp.bytes, static_cast<const std::byte*>(send) + r * stride,
                   stamp.bytes);
    }
    packed = here.sent;
  }
  settle(nccl_.reduce_scatter(packed, here.came, stamp.bytes / dtype_bytes(stamp.dtype),
                              nccl_type(stamp.dtype), kNcclSum, comm_, device::current_stream()),
         "ncclReduceScatter");
  views[0] = here.came;
}

void NcclCommunicator::all_to_all(Segment& here, const CollectiveStamp& stamp, const void* send,
                                  uint64_t stride, const void** views) {
  const uint64_t step = round_up(stamp.bytes, kAlign);
  const auto* from = static_cast<const std::byte*>(send);
  if (send == nullptr) { // the same zeros for everybody
    device_.fill(here.sent, 0, stamp.bytes);
    from = here.sent;
    stride = 0;
  }
  void* const stream = device::current_stream();
  settle(nccl_.group_start(), "ncclGroupStart");
  for (int32_t r = 0; r < size(); ++r) {
    const auto at = static_cast<uint64_t>(r);
    if (r == rank()) {
      views[r] = send == nullptr ? nullptr : from + at * stride;
      continue;
    }
    settle(nccl_.send(from + at * stride, stamp.bytes, kNcclByte, r, comm_, stream), "ncclSend");
    settle(nccl_.recv(here.came + at * step, stamp.bytes, kNcclByte, r, comm_, stream), "ncclRecv");
    views[r] = here.came + at * step;
  }
  settle(nccl_.group_end(), "ncclGroupEnd");
}

void NcclCommunicator::gather(Segment& here, const CollectiveStamp& stamp, const void* send,
                              const void** views) {
  void* const stream = device::current_stream();
  if (stamp.operation == Operation::kBroadcast) {
    const bool root = stamp.bucket == rank();
    settle(nccl_.broadcast(root ? send : here.came, here.came, stamp.bytes, kNcclByte, stamp.bucket,
                           comm_, stream),
           "ncclBroadcast");
    views[stamp.bucket] = here.came;
    return;
  }
  settle(nccl_.all_gather(send, here.came, stamp.bytes, kNcclByte, comm_, stream), "ncclAllGather");
  for (int32_t r = 0; r < size(); ++r) {
    views[r] = here.came + static_cast<uint64_t>(r) * stamp.bytes;
  }
}

void NcclCommunicator::sum_on_device(Channel channel, const CollectiveStamp& stamp, int64_t* values,
                                     uint64_t count) {
  check();
  const device::CurrentDevice current(device_.ordinal());
  Segment& here = segment(channel);
  here.ended->wait();
  {
    const std::lock_guard<std::mutex> lock(launching_);
    settle(nccl_.all_reduce(values, values, count, kNcclInt64, kNcclSum, comm_,
                            device::current_stream()),
           "ncclAllReduce");
  }
  note_launch(stamp);
}

// ---- the watch
// -----------------------------------------------------------------------------------

// What a graph captures runs later, unseen; where the ring is full its oldest is watched.
void NcclCommunicator::note_launch(const CollectiveStamp& stamp) {
  if (device_.capturing()) return;
  const std::lock_guard<std::mutex> lock(watched_);
  if (launch_count_ == kLaunches) return;
  Launch& launch = launches_[(first_launch_ + launch_count_++) % kLaunches];
  launch.event->record();
  launch.stamp = stamp;
  launch.since_ns = now_ns();
}

void NcclCommunicator::watch() {
  std::unique_lock<std::mutex> lock(watched_);
  while (!leaving_) {
    wake_.wait_for(lock, kLookEvery);
    if (leaving_) return;
    lock.unlock();
    const bool goes_on = look();
    lock.lock();
    if (!goes_on) return;
  }
}

bool NcclCommunicator::look() {
  try {
    host().check();
    int32_t result = kNcclSuccess;
    nccl_.async_error(comm_, &result);
    if (result != kNcclSuccess && result != kNcclInProgress) settle(result, "NCCL");
    const std::lock_guard<std::mutex> lock(watched_);
    const int64_t now = now_ns();
    while (launch_count_ > 0 && launches_[first_launch_].event->done()) {
      first_launch_ = (first_launch_ + 1) % kLaunches;
      if (--launch_count_ > 0) launches_[first_launch_].since_ns = now; // its turn begins
    }
    if (launch_count_ > 0 && now - launches_[first_launch_].since_ns >= timeout_ns_) {
      const CollectiveStamp& stamp = launches_[first_launch_].stamp;
      const std::string what =
          namer_ == nullptr ? operation_name(stamp.operation) : namer_->describe(stamp);
      throw Error(ZERO_ERR_COMM_TIMEOUT,
                  format("no progress of NCCL for %lld ms in the %s",
                         static_cast<long long>(timeout_ns_ / 1000000), what.c_str()));
    }
    return true;
  } catch (const Error& error) {
    end_with(error);
    return false;
  }
}

// The first error stays; kernels that wait for peers end, here and by host's abort at the peers.
void NcclCommunicator::end_with(const Error& error) {
  {
    const std::lock_guard<std::mutex> lock(watched_);
    if (ended_by_ == nullptr) ended_by_ = std::make_unique<Error>(error);
    if (!aborted_) nccl_.abort(comm_);
    aborted_ = true;
  }
  host().abort();
}

void NcclCommunicator::set_namer(const StampNamer* namer) {
  {
    const std::lock_guard<std::mutex> lock(watched_);
    namer_ = namer;
  }
  DeviceComm::set_namer(namer);
}

// The watcher sees that the host's communicator has ended, and ends NCCL's.
void NcclCommunicator::abort() noexcept {
  DeviceComm::abort();
  wake_.notify_all();
}

void NcclCommunicator::check() {
  {
    const std::lock_guard<std::mutex> lock(watched_);
    if (ended_by_ != nullptr) throw Error(*ended_by_);
  }
  host().check();
}

std::shared_ptr<Communicator> make_nccl(std::shared_ptr<Communicator> host, device::Device& device,
                                        const NcclOptions& options) {
  return std::make_shared<NcclCommunicator>(std::move(host), device, options);
}

} // namespace zero::comm
