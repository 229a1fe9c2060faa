// The small collectives, built on exchanges.  Where an exchange must start in shared memory the
// data goes through the channel's small buffer, piece by piece.
// SPDX-License-Identifier: BSD-3-Clause
#include "comm/communicator.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/checked.h"
#include "base/error.h"

namespace zero::comm {
namespace {

constexpr uint64_t kReducePieceBytes = 32 * 1024; // on the stack

// A cut collective has one stamp a piece; what is still to come makes total lengths that differ
// visible in the first piece.
CollectiveStamp piece_stamp(const CollectiveStamp& stamp, uint64_t bytes, uint64_t rest) {
  CollectiveStamp piece = stamp;
  piece.bytes = bytes;
  piece.detail ^= rest << 16;
  return piece;
}

double combine(double a, double b, zero_reduce op) {
  if (op == ZERO_REDUCE_SUM) return a + b;
  if (std::isnan(a)) return a;
  if (std::isnan(b)) return b;
  return op == ZERO_REDUCE_MAX ? std::max(a, b) : std::min(a, b);
}

// Views of up to 64 ranks without touching the heap.
class Views {
 public:
  explicit Views(int32_t size) {
    if (size > kFixed) heap_ = std::make_unique<const void*[]>(static_cast<size_t>(size));
  }
  const void** get() { return heap_ ? heap_.get() : fixed_; }

 private:
  static constexpr int32_t kFixed = 64;
  const void* fixed_[kFixed];
  std::unique_ptr<const void*[]> heap_;
};

} // namespace

void Communicator::announce(const CollectiveStamp&) {}

void Communicator::sum_on_device(Channel, const CollectiveStamp&, int64_t*, uint64_t) {
  fail(ZERO_ERR_INTERNAL,
       "this communicator does not handle device memory; it was asked for a sum");
}

void Communicator::all_gather(Channel channel, CollectiveStamp stamp, const void* send, void* recv,
                              uint64_t bytes_each) {
  Views views(size());
  void* const shared = needs_shared_memory() ? small_buffer(channel) : nullptr;
  const uint64_t largest = shared != nullptr ? kSmallBytes : largest_block();
  uint64_t done = 0;
  do {
    const uint64_t bytes = std::min(largest, bytes_each - done);
    const void* piece = static_cast<const char*>(send) + done;
    if (shared != nullptr && bytes != 0) piece = std::memcpy(shared, piece, bytes);
    if (shared != nullptr) piece = shared;
    exchange_begin(channel, ExchangeKind::kGather,
                   piece_stamp(stamp, bytes, bytes_each - done - bytes), piece, 0, views.get());
    for (int32_t i = 0; i < size() && bytes != 0; ++i) {
      void* const dst = static_cast<char*>(recv) + static_cast<uint64_t>(i) * bytes_each + done;
      std::memmove(dst, views.get()[i], bytes);
    }
    exchange_end(channel);
    done += bytes;
  } while (done < bytes_each);
}

void Communicator::broadcast(Channel channel, CollectiveStamp stamp, void* bytes, uint64_t count,
                             int32_t root) {
  if (root < 0 || root >= size()) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "root is %d, expected 0 <= root < %d", root, size());
  }
  Views views(size());
  void* const shared = needs_shared_memory() ? small_buffer(channel) : nullptr;
  const uint64_t largest = shared != nullptr ? kSmallBytes : largest_block();
  stamp.operation = Operation::kBroadcast;
  stamp.bucket = root;
  uint64_t done = 0;
  do {
    const uint64_t length = std::min(largest, count - done);
    char* const here = static_cast<char*>(bytes) + done;
    if (shared != nullptr && rank() == root && length != 0) std::memcpy(shared, here, length);
    exchange_begin(channel, ExchangeKind::kGather,
                   piece_stamp(stamp, length, count - done - length),
                   shared != nullptr ? shared : here, 0, views.get());
    if (rank() != root && length != 0) std::memcpy(here, views.get()[root], length);
    exchange_end(channel);
    done += length;
  } while (done < count);
}

void Communicator::barrier(Channel channel, CollectiveStamp stamp) {
  Views views(size());
  const uint64_t nothing = 0;
  stamp.bytes = sizeof(nothing);
  exchange_begin(channel, ExchangeKind::kGather, stamp,
                 needs_shared_memory() ? small_buffer(channel) : &nothing, 0, views.get());
  exchange_end(channel);
}

void Communicator::all_reduce_int64(Channel channel, CollectiveStamp stamp, int64_t* values,
                                    uint64_t count) {
  constexpr uint64_t kMost = kReducePieceBytes / sizeof(int64_t);
  uint64_t sums[kMost]; // unsigned: a wrap would be a wrong number, not undefined behaviour
  Views views(size());
  void* const shared = needs_shared_memory() ? small_buffer(channel) : nullptr;
  const uint64_t most = std::min(kMost, largest_block() / sizeof(int64_t));
  for (uint64_t done = 0; done < count;) {
    const uint64_t n = std::min(most, count - done);
    const void* send = values + done;
    if (shared != nullptr) send = std::memcpy(shared, send, n * sizeof(int64_t));
    exchange_begin(channel, ExchangeKind::kGather,
                   piece_stamp(stamp, n * sizeof(int64_t), count - done - n), send, 0, views.get());
    std::memset(sums, 0, n * sizeof(int64_t));
    for (int32_t i = 0; i < size(); ++i) {
      const int64_t* const part = static_cast<const int64_t*>(views.get()[i]);
      for (uint64_t k = 0; k < n; ++k) sums[k] += static_cast<uint64_t>(part[k]);
    }
    exchange_end(channel);
    for (uint64_t k = 0; k < n; ++k) values[done + k] = static_cast<int64_t>(sums[k]);
    done += n;
  }
}

void Communicator::all_reduce_double(Channel channel, CollectiveStamp stamp, double* values,
                                     uint64_t count, zero_reduce op) {
  if (op != ZERO_REDUCE_SUM && op != ZERO_REDUCE_MAX && op != ZERO_REDUCE_MIN) {
    fail(ZERO_ERR_INVALID_ARGUMENT,
         "op is %d, expected ZERO_REDUCE_SUM (1), ZERO_REDUCE_MAX (2) or ZERO_REDUCE_MIN (3)", op);
  }
  constexpr uint64_t kMost = kReducePieceBytes / sizeof(double);
  double results[kMost];
  Views views(size());
  void* const shared = needs_shared_memory() ? small_buffer(channel) : nullptr;
  const uint64_t most = std::min(kMost, largest_block() / sizeof(double));
  stamp.detail ^= static_cast<uint64_t>(op) << 8;
  for (uint64_t done = 0; done < count;) {
    const uint64_t n = std::min(most, count - done);
    const void* send = values + done;
    if (shared != nullptr) send = std::memcpy(shared, send, n * sizeof(double));
    exchange_begin(channel, ExchangeKind::kGather,
                   piece_stamp(stamp, n * sizeof(double), count - done - n), send, 0, views.get());
    std::memcpy(results, views.get()[0], n * sizeof(double));
    for (int32_t i = 1; i < size(); ++i) {
      const double* const part = static_cast<const double*>(views.get()[i]);
      for (uint64_t k = 0; k < n; ++k) results[k] = combine(results[k], part[k], op);
    }
    exchange_end(channel);
    std::memcpy(values + done, results, n * sizeof(double));
    done += n;
  }
}

} // namespace zero::comm
