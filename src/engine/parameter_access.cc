// SPDX-License-Identifier: BSD-3-Clause
#include "engine/parameter_access.h"

#include <xxhash.h>

#include <cstring>

#include "base/dtype.h"
#include "engine/agreement.h"
#include "engine/host_values.h"
#include "engine/initial_values.h"
#include "engine/master_weights.h"

namespace zero::engine {
namespace {

const char* part_name(zero_part part) {
  switch (part) {
    case ZERO_PART_VALUE:
      return "VALUE";
    case ZERO_PART_GRAD:
      return "GRAD";
    case ZERO_PART_MASTER:
      return "MASTER";
    default:
      return "STATE";
  }
}

void check_bytes(const char* call, const std::string& name, uint64_t bytes, uint64_t expected) {
  if (bytes == expected) return;
  fail(ZERO_ERR_INVALID_ARGUMENT, "%s: param \"%s\": bytes is %llu, expected %llu", call,
       name.c_str(), static_cast<unsigned long long>(bytes),
       static_cast<unsigned long long>(expected));
}

} // namespace

ParameterAccess::Located ParameterAccess::locate(zero_param_id param, zero_part part, int32_t index,
                                                 const char* call) const {
  const plan::Plan& plan = *context_.plan;
  if (param < 0 || param >= static_cast<int32_t>(plan.places.size())) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "%s: parameter %d does not exist, expected 0 to %d", call,
         param, static_cast<int32_t>(plan.places.size()) - 1);
  }
  if (part < ZERO_PART_VALUE || part > ZERO_PART_STATE) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "%s: part is %d, expected 0 to 3 (VALUE, GRAD, MASTER, STATE)",
         call, part);
  }
  const zero_param_id root = context_.parameter(param).root;
  const plan::Parameter& parameter = context_.parameter(root);
  const char* name = parameter.name.c_str();
  if (part != ZERO_PART_VALUE && parameter.role != ZERO_PARAM_TRAINED) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "%s: param \"%s\" is not trained and has no %s", call, name,
         part_name(part));
  }
  const int32_t states = plan.settings.optimizer_states;
  const int32_t limit = part == ZERO_PART_STATE ? states : 1;
  if (index < 0 || index >= limit) {
    fail(ZERO_ERR_INVALID_ARGUMENT,
         "%s: param \"%s\": index of %s is %d, expected 0 to %d (it has %d)", call, name,
         part_name(part), index, limit - 1, limit);
  }
  if (part == ZERO_PART_GRAD && !stepper_.gradients_at_hand()) {
    fail(ZERO_ERR_INVALID_STATE,
         "%s: the gradient of param \"%s\" can be had only between a zero_step_begin that did not "
         "skip "
         "and zero_step_end",
         call, name);
  }
  if (part == ZERO_PART_GRAD && !stepper_.came(root)) {
    fail(ZERO_ERR_NOT_FOUND, "%s: no gradient of param \"%s\" came on any rank in this step", call,
         name);
  }
  Located located;
  if (parameter.role == ZERO_PARAM_BUFFER) {
    located.start = context_.storage->whole_value(root);
    located.span = zero_span{0, parameter.elements};
    located.dtype = parameter.dtype;
    located.whole = true;
    located.inner = parameter.dtype;
    return located;
  }
  const plan::ParameterPlace& place = plan.places[static_cast<size_t>(root)];
  const plan::Bucket& bucket = context_.bucket(place.bucket);
  const ClassMemory& memory = context_.storage->of_bucket(place.bucket);
  located.span = plan.owned_span(root, context_.rank());
  located.whole = part == ZERO_PART_VALUE ? !plan.placement.parameters_sharded
                                          : !plan.placement.optimizer_sharded;
  located.dtype = part == ZERO_PART_VALUE ? parameter.dtype : ZERO_DTYPE_FP32;
  const uint64_t in_bucket = place.offset + located.span.offset;
  const uint64_t shard_start = plan.placement.optimizer_sharded
                                   ? static_cast<uint64_t>(context_.rank()) * bucket.shard_elements
                                   : 0;
  // A rank that owns none of it points at the start of its shard.
  const uint64_t in_shard = located.span.count == 0 ? 0 : in_bucket - shard_start;
  const uint64_t home =
      (plan.placement.optimizer_sharded ? bucket.shard_offset : bucket.class_offset) + in_shard;
  const plan::ParameterClass& klass = plan.classes[static_cast<size_t>(bucket.parameter_class)];
  const bool master_is_value = !klass.keeps_master;
  located.begin = in_bucket;
  located.bucket = place.bucket;
  if (part == ZERO_PART_MASTER) {
    located.inner = klass.master_is_remainder ? 0
                    : klass.keeps_master      ? ZERO_DTYPE_FP32
                                              : klass.dtype;
  } else {
    located.inner = part == ZERO_PART_STATE ? klass.state_dtype : located.dtype;
  }
  if (part == ZERO_PART_VALUE || (part == ZERO_PART_MASTER && master_is_value)) {
    if (plan.placement.parameters_sharded) {
      located.start =
          memory.params + (bucket.shard_offset + in_shard) * dtype_bytes(parameter.dtype);
    } else {
      located.start =
          context_.storage->whole_value(root) + located.span.offset * dtype_bytes(parameter.dtype);
    }
  } else if (part == ZERO_PART_MASTER) {
    located.start = klass.master_is_remainder
                        ? reinterpret_cast<std::byte*>(memory.remainder + home)
                        : reinterpret_cast<std::byte*>(memory.master + home);
  } else if (part == ZERO_PART_STATE) {
    located.start =
        memory.states[static_cast<size_t>(index)] + home * dtype_bytes(klass.state_dtype);
  } else {
    located.start = stepper_.owned(place.bucket).grad + in_shard * sizeof(float);
  }
  return located;
}

zero_buffer ParameterAccess::shard_buffer(zero_param_id param, zero_part part,
                                          int32_t index) const {
  const Located located = locate(param, part, index, "zero_shard_buffer");
  if (located.inner == 0) {
    fail(ZERO_ERR_UNSUPPORTED,
         "zero_shard_buffer: the master of param \"%s\" is kept as a remainder and lies nowhere in "
         "place; expected zero_param_get",
         context_.parameter(param).name.c_str());
  }
  zero_buffer buffer{};
  buffer.data = located.span.count == 0 ? nullptr : located.start;
  buffer.count = located.span.count;
  buffer.bytes = located.span.count * dtype_bytes(located.inner);
  buffer.dtype = located.inner;
  buffer.place = context_.device->place();
  buffer.device = -1;
  return buffer;
}

// This rank's span, as fp32 or the value's own dtype, from however it is kept.
void ParameterAccess::read_part(const Located& located, zero_part part, const std::byte* start,
                                std::byte* out) {
  const uint64_t count = located.span.count;
  if (part == ZERO_PART_MASTER && located.inner != ZERO_DTYPE_FP32) {
    read_masters(context_, located.bucket, located.begin, located.begin + count,
                 reinterpret_cast<float*>(out));
  } else if (located.inner != located.dtype) {
    context_.kernels->cast(start, located.inner, out, located.dtype, count);
  } else {
    std::memcpy(out, start, count * dtype_bytes(located.dtype));
  }
}

void ParameterAccess::get(zero_param_id param, zero_part part, int32_t index, void* values,
                          uint64_t bytes) {
  const Located located = locate(param, part, index, "zero_param_get");
  const zero_param_id root = context_.parameter(param).root;
  const plan::Parameter& parameter = context_.parameter(root);
  const uint64_t size = dtype_bytes(located.dtype);
  check_bytes("zero_param_get", parameter.name, bytes, parameter.elements * size);
  auto* out = static_cast<std::byte*>(values);
  if (located.whole) {
    if (bytes == 0) return;
    const std::byte* start = part == ZERO_PART_VALUE && parameter.role != ZERO_PARAM_BUFFER
                                 ? context_.storage->whole_value(root)
                                 : located.start;
    Located all = located;
    all.begin -= located.span.offset;
    all.span = zero_span{0, parameter.elements};
    read_part(all, part, start, out);
    return;
  }
  for (int32_t r = 0; r < context_.ranks(); ++r) {
    const zero_span span = context_.plan->shard_span(root, r);
    if (span.count == 0) continue;
    std::byte* target = out + span.offset * size;
    if (r == context_.rank()) read_part(located, part, located.start, target);
    context_.comm->broadcast(
        comm::Channel::kControl,
        context_.sequence->control(comm::Operation::kBroadcast, span.count * size), target,
        span.count * size, r);
  }
}

void ParameterAccess::set(zero_param_id param, zero_part part, int32_t index, const void* values,
                          uint64_t bytes) {
  const Located located = locate(param, part, index, "zero_param_set");
  const zero_param_id root = context_.parameter(param).root;
  const plan::Parameter& parameter = context_.parameter(root);
  const uint64_t size = dtype_bytes(located.dtype);
  check_bytes("zero_param_set", parameter.name, bytes, parameter.elements * size);
  if (loans_.open_loans() > 0) {
    fail(ZERO_ERR_INVALID_STATE,
         "zero_param_set: parameters are still on loan: %s; expected zero_params_release",
         loans_.open_text().c_str());
  }
  // Different values on two ranks would part them for good.
  struct Given {
    uint64_t hash;
  } given{bytes == 0 ? 0 : XXH3_64bits(values, bytes)};
  std::vector<Given> all(static_cast<size_t>(context_.ranks()));
  context_.comm->all_gather(comm::Channel::kControl,
                            context_.sequence->control(comm::Operation::kAllGather, sizeof(Given)),
                            &given, all.data(), sizeof(Given));
  for (size_t r = 1; r < all.size(); ++r) {
    if (all[r].hash == all[0].hash) continue;
    throw Error(
        ZERO_ERR_INVALID_ARGUMENT,
        format("zero_param_set: param \"%s\": rank %zu gives other values than rank 0; nothing "
               "was changed",
               parameter.name.c_str(), r),
        static_cast<int32_t>(r));
  }
  const auto* in = static_cast<const std::byte*>(values);
  const std::byte* own = in + located.span.offset * size;
  const uint64_t count = located.span.count;
  const uint64_t end = located.begin + count;
  const bool whole_value = part == ZERO_PART_VALUE && located.whole;
  if (whole_value) {
    if (bytes != 0) std::memcpy(context_.storage->whole_value(root), in, bytes);
  } else if (count != 0 && part == ZERO_PART_MASTER && is_16_bit_float(parameter.dtype)) {
    write_masters(context_, located.bucket, located.begin, end,
                  reinterpret_cast<const float*>(own));
  } else if (count != 0 && located.inner != located.dtype) {
    context_.kernels->cast(own, located.dtype, located.start, located.inner, count);
  } else if (count != 0) {
    std::memcpy(located.start, own, count * size);
  }
  if (parameter.role == ZERO_PARAM_BUFFER || part == ZERO_PART_STATE) return;
  if (part == ZERO_PART_VALUE && parameter.role == ZERO_PARAM_TRAINED) {
    masters_from_values(context_, located.bucket, located.begin, end);
  } else if (part == ZERO_PART_MASTER && located.inner == parameter.dtype) {
    fetch_values(context_, located.bucket, located.begin, end); // the value is the master
  }
  if (!whole_value) stepper_.gather_values();
}

void ParameterAccess::broadcast(int32_t root) {
  if (root < 0 || root >= context_.ranks()) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "zero_params_broadcast: root is %d, expected 0 to %d", root,
         context_.ranks() - 1);
  }
  if (context_.plan->placement.parameters_sharded) {
    fail(ZERO_ERR_UNSUPPORTED,
         "zero_params_broadcast: at stage 3 no rank holds whole parameters; expected "
         "\"libzero.initial_values\": \"rank:%d\" before zero_shard_params",
         root);
  }
  broadcast_values(context_, transfer_, root);
  masters_from_all_values(context_);
  if (context_.plan->placement.optimizer_sharded) return;
  for (const plan::Region& region : context_.plan->memory.regions) {
    if (region.kind != plan::RegionKind::kState) continue;
    std::byte* state = context_.storage->of_class(region.parameter_class)
                           .states[static_cast<size_t>(region.state)];
    context_.comm->broadcast(comm::Channel::kControl,
                             context_.sequence->control(comm::Operation::kBroadcast, region.bytes),
                             state, region.bytes, root);
  }
}

} // namespace zero::engine
