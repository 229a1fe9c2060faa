// zero.h, section 6: communicators.
// SPDX-License-Identifier: BSD-3-Clause
#include "api/api_values.h"
#include "api/growing.h"
#include "api/handles.h"
#include "comm/user_comm.h"

using namespace zero::api; // the C functions below are outside of any namespace
using zero::fail;
using zero::comm::Channel;
using zero::comm::CollectiveStamp;
using zero::comm::Operation;

namespace {

CollectiveStamp stamp_of(Operation operation, uint64_t bytes, uint64_t detail) {
  CollectiveStamp stamp;
  stamp.operation = operation;
  stamp.bytes = bytes;
  stamp.detail = detail;
  return stamp;
}

void check_rank_and_size(int32_t rank, int32_t size) {
  if (size < 1) fail(ZERO_ERR_INVALID_ARGUMENT, "size is %d, expected 1 or more", size);
  check_rank(rank, size);
}

} // namespace

zero_status zero_comm_create_self(zero_comm** comm) {
  return guard([&] {
    require(comm, "comm");
    *comm = new zero_comm{zero::comm::make_self()};
  });
}

zero_status zero_comm_create_local(const char* group_name, int32_t rank, int32_t size,
                                   int64_t timeout_ns, zero_comm** comm) {
  return guard([&] {
    require(group_name, "group_name");
    require(comm, "comm");
    check_rank_and_size(rank, size);
    if (timeout_ns < 0) {
      fail(ZERO_ERR_INVALID_ARGUMENT,
           "timeout_ns is %lld, expected more than 0, or 0 for the default of 10 minutes",
           static_cast<long long>(timeout_ns));
    }
    const int64_t timeout = timeout_ns == 0 ? int64_t{600} * 1000000000 : timeout_ns;
    *comm = new zero_comm{zero::comm::make_local(group_name, rank, size, timeout)};
  });
}

zero_status zero_comm_create_from_config(const zero_config* config, zero_comm** comm) {
  return guard([&] {
    require(config, "config");
    require(comm, "comm");
    const zero::config::Settings settings = config->config.settings();
    *comm = new zero_comm{
        zero::comm::make_from_environment(settings.comm, settings.group, settings.comm_timeout_ns)};
  });
}

void zero_comm_callbacks_init(zero_comm_callbacks* callbacks, uint32_t struct_size) {
  zero_comm_callbacks defaults{};
  defaults.channels = 1;
  init_struct(callbacks, struct_size, defaults);
}

zero_status zero_comm_create_user(int32_t rank, int32_t size, const zero_comm_callbacks* callbacks,
                                  void* user_data, zero_comm** comm) {
  return guard([&] {
    require(comm, "comm");
    check_rank_and_size(rank, size);
    zero_comm_callbacks defaults;
    zero_comm_callbacks_init(&defaults, sizeof(defaults));
    const zero_comm_callbacks given = read_struct(callbacks, "callbacks", defaults);
    if (given.all_gather == nullptr || given.all_to_all == nullptr) {
      fail(ZERO_ERR_INVALID_ARGUMENT, "callbacks->%s is NULL, expected a function",
           given.all_gather == nullptr ? "all_gather" : "all_to_all");
    }
    if (given.channels < 1) {
      fail(ZERO_ERR_INVALID_ARGUMENT, "callbacks->channels is %d, expected 1 or more",
           given.channels);
    }
    zero::comm::set_callback_message_source(&take_callback_message);
    *comm = new zero_comm{zero::comm::make_user(rank, size, given, user_data)};
  });
}

int32_t zero_comm_rank(const zero_comm* comm) {
  return comm == nullptr ? -1 : comm->comm->rank();
}

int32_t zero_comm_size(const zero_comm* comm) {
  return comm == nullptr ? -1 : comm->comm->size();
}

zero_status zero_comm_all_reduce(zero_comm* comm, double* values, uint64_t count, zero_reduce op) {
  return guard([&] {
    require(comm, "comm");
    if (count > 0) require(values, "values");
    if (op < ZERO_REDUCE_SUM || op > ZERO_REDUCE_MIN) {
      fail(ZERO_ERR_INVALID_ARGUMENT, "op is %d, expected 1 to 3 (SUM, MAX, MIN)", op);
    }
    comm->comm->all_reduce_double(
        Channel::kControl,
        stamp_of(Operation::kAllReduce, count * sizeof(double), static_cast<uint64_t>(op)), values,
        count, op);
  });
}

zero_status zero_comm_broadcast(zero_comm* comm, void* bytes, uint64_t count, int32_t root) {
  return guard([&] {
    require(comm, "comm");
    if (count > 0) require(bytes, "bytes");
    check_rank(root, comm->comm->size());
    CollectiveStamp stamp = stamp_of(Operation::kBroadcast, count, count);
    stamp.bucket = root;
    comm->comm->broadcast(Channel::kControl, stamp, bytes, count, root);
  });
}

zero_status zero_comm_barrier(zero_comm* comm) {
  return guard([&] {
    require(comm, "comm");
    comm->comm->barrier(Channel::kControl, stamp_of(Operation::kBarrier, 0, 0));
  });
}

void zero_comm_abort(zero_comm* comm) {
  if (comm != nullptr) comm->comm->abort();
}

void zero_comm_destroy(zero_comm* comm) {
  delete comm;
}
