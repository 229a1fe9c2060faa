// SPDX-License-Identifier: BSD-3-Clause
#include "engine/state_ranges.h"

#include <algorithm>
#include <cstring>

#include "base/dtype.h"
#include "engine/master_weights.h"

namespace zero::engine {
namespace {

constexpr uint64_t kTieBlock = 32; // elements whose ties are bits of one word

} // namespace

const plan::ParameterClass& StateRanges::class_of(zero_param_id root) const {
  const int32_t bucket = context_.plan->places[static_cast<size_t>(root)].bucket;
  return context_.plan->classes[static_cast<size_t>(context_.bucket(bucket).parameter_class)];
}

zero_dtype StateRanges::dtype(zero_param_id root, zero_part part) const {
  if (part == ZERO_PART_VALUE) return context_.parameter(root).dtype;
  const plan::ParameterClass& klass = class_of(root);
  if (part == ZERO_PART_STATE) return klass.state_dtype;
  return klass.keeps_master ? ZERO_DTYPE_FP32 : klass.dtype;
}

zero_span StateRanges::wanted(zero_param_id root) const {
  const plan::Parameter& parameter = context_.parameter(root);
  if (parameter.role == ZERO_PARAM_TRAINED) {
    return context_.plan->owned_span(root, context_.rank());
  }
  if (parameter.role == ZERO_PARAM_FROZEN && context_.plan->placement.parameters_sharded) {
    return context_.plan->shard_span(root, context_.rank());
  }
  return zero_span{0, parameter.elements};
}

std::byte* StateRanges::value_at(zero_param_id root, uint64_t offset) const {
  const uint64_t size = dtype_bytes(context_.parameter(root).dtype);
  std::byte* whole = context_.storage->whole_value(root);
  if (whole != nullptr) return whole + offset * size;
  const plan::ParameterPlace& place = context_.plan->places[static_cast<size_t>(root)];
  const plan::Bucket& bucket = context_.bucket(place.bucket);
  const uint64_t own = static_cast<uint64_t>(context_.rank()) * bucket.shard_elements;
  return context_.storage->of_bucket(place.bucket).params +
         (bucket.shard_offset + place.offset + offset - own) * size;
}

// Where an element's master and states lie in the memory of its class.
uint64_t StateRanges::home_of(zero_param_id root, uint64_t offset) const {
  const plan::ParameterPlace& place = context_.plan->places[static_cast<size_t>(root)];
  const plan::Bucket& bucket = context_.bucket(place.bucket);
  if (!context_.plan->placement.optimizer_sharded) {
    return bucket.class_offset + place.offset + offset;
  }
  const uint64_t own = static_cast<uint64_t>(context_.rank()) * bucket.shard_elements;
  return bucket.shard_offset + place.offset + offset - own;
}

std::byte* StateRanges::state_at(zero_param_id root, int32_t index, uint64_t offset) const {
  const int32_t bucket = context_.plan->places[static_cast<size_t>(root)].bucket;
  return context_.storage->of_bucket(bucket).states[static_cast<size_t>(index)] +
         home_of(root, offset) * dtype_bytes(class_of(root).state_dtype);
}

void StateRanges::read_master(zero_param_id root, uint64_t offset, uint64_t count,
                              float* out) const {
  const plan::ParameterPlace& place = context_.plan->places[static_cast<size_t>(root)];
  uint64_t begin = place.offset + offset;
  const uint64_t end = begin + count;
  if (class_of(root).master_is_remainder && begin % kTieBlock != 0) {
    const uint64_t block = begin / kTieBlock * kTieBlock;
    const uint64_t inside = std::min(end, block + kTieBlock) - begin;
    float values[kTieBlock] = {};
    read_masters(context_, place.bucket, block, block + kTieBlock, values);
    std::memcpy(out, values + (begin - block), inside * sizeof(float));
    out += inside;
    begin += inside;
  }
  if (begin < end) read_masters(context_, place.bucket, begin, end, out);
}

// The ties of 32 elements are written together: at an edge the others are read first.
void StateRanges::write_master(zero_param_id root, uint64_t offset, uint64_t count,
                               const float* masters) {
  const plan::ParameterPlace& place = context_.plan->places[static_cast<size_t>(root)];
  uint64_t begin = place.offset + offset;
  const uint64_t end = begin + count;
  if (!class_of(root).master_is_remainder) {
    write_masters(context_, place.bucket, begin, end, masters);
    return;
  }
  while (begin < end) {
    const uint64_t block = begin / kTieBlock * kTieBlock;
    const uint64_t whole = (end - begin) / kTieBlock * kTieBlock;
    if (begin == block && whole != 0) {
      write_masters(context_, place.bucket, begin, begin + whole, masters);
      masters += whole;
      begin += whole;
      continue;
    }
    const uint64_t inside = std::min(end, block + kTieBlock) - begin;
    float values[kTieBlock] = {};
    read_masters(context_, place.bucket, block, block + kTieBlock, values);
    std::memcpy(values + (begin - block), masters, inside * sizeof(float));
    write_masters(context_, place.bucket, block, block + kTieBlock, values);
    masters += inside;
    begin += inside;
  }
}

void StateRanges::read(zero_param_id root, zero_part part, int32_t index, uint64_t offset,
                       uint64_t count, std::byte* out) const {
  if (count == 0) return;
  if (part == ZERO_PART_MASTER && class_of(root).keeps_master) {
    read_master(root, offset, count, reinterpret_cast<float*>(out));
    return;
  }
  std::memcpy(out, find(root, part, index, offset), count * dtype_bytes(dtype(root, part)));
}

const std::byte* StateRanges::find(zero_param_id root, zero_part part, int32_t index,
                                   uint64_t offset) const {
  if (part == ZERO_PART_STATE) return state_at(root, index, offset);
  if (part == ZERO_PART_VALUE || !class_of(root).keeps_master) return value_at(root, offset);
  const int32_t bucket = context_.plan->places[static_cast<size_t>(root)].bucket;
  const float* const master = context_.storage->of_bucket(bucket).master;
  if (master == nullptr) return nullptr;
  return reinterpret_cast<const std::byte*>(master + home_of(root, offset));
}

void StateRanges::write(zero_param_id root, zero_part part, int32_t index, uint64_t offset,
                        uint64_t count, const std::byte* data, zero_dtype from) {
  if (count == 0) return;
  if (part == ZERO_PART_STATE || context_.parameter(root).role != ZERO_PARAM_TRAINED) {
    std::byte* to =
        part == ZERO_PART_STATE ? state_at(root, index, offset) : value_at(root, offset);
    const zero_dtype kept =
        part == ZERO_PART_STATE ? class_of(root).state_dtype : context_.parameter(root).dtype;
    if (kept == from) {
      std::memcpy(to, data, count * dtype_bytes(from));
    } else {
      context_.kernels->cast(data, from, to, kept, count);
    }
    return;
  }
  if (from == ZERO_DTYPE_FP32) {
    write_master(root, offset, count, reinterpret_cast<const float*>(data));
    return;
  }
  constexpr uint64_t kPiece = 1024;
  float wide[kPiece];
  for (uint64_t at = 0; at < count; at += kPiece) {
    const uint64_t now = std::min(kPiece, count - at);
    context_.kernels->cast(data + at * dtype_bytes(from), from, wide, ZERO_DTYPE_FP32, now);
    write_master(root, offset + at, now, wide);
  }
}

void StateRanges::for_each_memory(zero_param_id root, zero_part part, int32_t index,
                                  uint64_t offset, uint64_t count, const VisitMemory& visit) const {
  if (count == 0) return;
  if (part == ZERO_PART_STATE) {
    visit(state_at(root, index, offset), count * dtype_bytes(class_of(root).state_dtype));
    return;
  }
  visit(value_at(root, offset), count * dtype_bytes(context_.parameter(root).dtype));
  if (context_.parameter(root).role != ZERO_PARAM_TRAINED) return;
  const ClassMemory& memory =
      context_.storage->of_bucket(context_.plan->places[static_cast<size_t>(root)].bucket);
  const uint64_t home = home_of(root, offset);
  if (memory.host_params != nullptr && memory.host_params != memory.params) {
    const uint64_t size = dtype_bytes(context_.parameter(root).dtype);
    visit(memory.host_params + home * size, count * size);
  }
  if (memory.master != nullptr) {
    visit(reinterpret_cast<std::byte*>(memory.master + home), count * sizeof(float));
  }
  if (memory.remainder == nullptr) return;
  visit(reinterpret_cast<std::byte*>(memory.remainder + home), count * sizeof(uint16_t));
  const uint64_t first = home / kTieBlock, last = (home + count - 1) / kTieBlock;
  visit(reinterpret_cast<std::byte*>(memory.ties + first), (last + 1 - first) * sizeof(uint32_t));
}

void StateRanges::clear_states(zero_param_id root) {
  const zero_span span = wanted(root);
  if (span.count == 0) return;
  for (int32_t index = 0; index < context_.plan->settings.optimizer_states; ++index) {
    std::memset(state_at(root, index, span.offset), 0,
                span.count * dtype_bytes(class_of(root).state_dtype));
  }
}

} // namespace zero::engine
