// Where an offloaded rank's memory lies on a device, and the two copies of its shard: what the
// engine fetches and returns, on the emulated machine, whose streams run late and whose device
// memory the host cannot touch. SPDX-License-Identifier: BSD-3-Clause
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

// Before cmocka, whose macro is called fail too.
#include "base/dtype.h"
#include "engine/collective_sequence.h"
#include "engine/host_values.h"
#include "engine/master_weights.h"

#include <csetjmp>
extern "C" {
#include <cmocka.h>
}

namespace {

using namespace zero;
using namespace zero::engine;

constexpr int64_t kSizes[] = {4096, 100, 33, 8000, 5, 2048};

// What a rank holds after zero_shard_params, of a model in buckets of one parameter.
struct Rank {
  Rank(int32_t stage, zero_dtype dtype, bool params, bool pinned, bool callers = false) {
    context.comm = comm::make_self();
    context.device = device::make_cuda_device(0);
    context.host_beside = device::make_host_device(1);
    context.kernels = &kernels::host_kernels();
    plan::PlanSettings settings;
    settings.stage = stage;
    settings.optimizer_present = true;
    settings.optimizer_states = 2;
    settings.reduce_bucket_elements = 0;
    settings.place = ZERO_PLACE_DEVICE;
    settings.offload_optimizer = true;
    settings.offload_param = params;
    settings.offload_pinned = pinned;
    plan::ParameterTable model;
    for (const int64_t size : kSizes) {
      plan::Parameter parameter;
      parameter.name = "p" + std::to_string(size);
      parameter.shape = {size};
      parameter.dtype = dtype;
      if (callers) {
        parameter.storage = ZERO_STORAGE_CALLER;
        parameter.data = context.device->allocate(static_cast<uint64_t>(size) * 4);
        callers_.push_back(parameter.data);
      }
      model.add(parameter);
    }
    context.plan = plan::Plan::make(settings, model);
    context.storage = std::make_unique<Storage>(*context.plan, *context.comm, *context.device,
                                                context.host(), nullptr, context.ledger);
    context.storage->allocate_private();
  }
  ~Rank() {
    for (void* memory : callers_) context.device->release(memory, 0);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  int32_t buckets() const { return static_cast<int32_t>(context.plan->buckets.size()); }
  uint64_t bytes(int32_t b) const {
    return context.bucket(b).members[0].count * context.storage->element_bytes(b);
  }
  std::byte* on_host(int32_t b) const {
    return context.storage->of_bucket(b).host_params +
           context.bucket(b).shard_offset * context.storage->element_bytes(b);
  }
  std::byte* on_device(int32_t b) const {
    const ClassMemory& memory = context.storage->of_bucket(b);
    if (memory.params == nullptr) {
      return static_cast<std::byte*>(context.parameter(context.bucket(b).members[0].param).data);
    }
    const bool sharded = context.plan->placement.parameters_sharded;
    const plan::Bucket& layout = context.bucket(b);
    return memory.params + (sharded ? layout.shard_offset : layout.class_offset) *
                               context.storage->element_bytes(b);
  }
  std::vector<std::byte> pattern(int32_t b, int seed) const {
    std::vector<float> wide(context.bucket(b).members[0].count);
    for (size_t i = 0; i < wide.size(); ++i) {
      wide[i] = static_cast<float>((i * 7 + static_cast<size_t>(seed)) % 255) - 100;
    }
    std::vector<std::byte> values(bytes(b));
    const auto klass = static_cast<size_t>(context.bucket(b).parameter_class);
    context.kernels->cast(wide.data(), ZERO_DTYPE_FP32, values.data(),
                          context.plan->classes[klass].dtype, wide.size());
    return values;
  }
  std::vector<std::byte> read(const void* memory, uint64_t count) {
    std::vector<std::byte> values(count);
    context.device->copy(values.data(), memory, count);
    context.device->synchronize();
    return values;
  }

  Context context;

 private:
  std::vector<void*> callers_;
};

void every_region_lies_where_the_plan_says(void**) {
  for (const bool params : {false, true}) {
    for (const bool pinned : {false, true}) {
      const Rank rank(3, ZERO_DTYPE_BF16, params, pinned);
      const ClassMemory& memory = rank.context.storage->of_class(0);
      const auto lies = [&](const void* at, zero_place place) {
        int32_t ordinal = -1;
        assert_non_null(at);
        assert_int_equal(rank.context.device->place_of(at, &ordinal), place);
      };
      const zero_place home = pinned ? ZERO_PLACE_PINNED : ZERO_PLACE_HOST;
      lies(memory.master, home);
      lies(memory.states[0], home);
      lies(memory.states[1], home);
      lies(memory.grads, ZERO_PLACE_PINNED);
      lies(memory.host_params, ZERO_PLACE_PINNED);
      lies(memory.params, params ? ZERO_PLACE_PINNED : ZERO_PLACE_DEVICE);
      lies(memory.pool, ZERO_PLACE_DEVICE);
      lies(rank.context.storage->loan_slots(), ZERO_PLACE_DEVICE);
      assert_int_equal(memory.host_params == memory.params, params);
    }
  }
}

void masters_are_made_of_what_lies_on_the_device(void**) {
  for (const zero_dtype dtype : {ZERO_DTYPE_FP32, ZERO_DTYPE_BF16}) {
    for (const int32_t stage : {1, 2, 3}) {
      for (const bool callers : {false, true}) {
        if (callers && stage == 3) continue;
        Rank rank(stage, dtype, false, false, callers);
        for (int32_t b = 0; b < rank.buckets(); ++b) {
          const std::vector<std::byte> values = rank.pattern(b, b);
          rank.context.device->copy(rank.on_device(b), values.data(), values.size());
          rank.context.device->synchronize();
        }
        masters_from_all_values(rank.context);
        for (int32_t b = 0; b < rank.buckets(); ++b) {
          const std::vector<std::byte> values = rank.pattern(b, b);
          assert_memory_equal(rank.on_host(b), values.data(), values.size());
          if (dtype == ZERO_DTYPE_FP32) continue;
          const float* master =
              rank.context.storage->of_bucket(b).master + rank.context.bucket(b).shard_offset;
          for (size_t i = 0; i < values.size() / 2; ++i) {
            assert_true(master[i] ==
                        static_cast<float>((i * 7 + static_cast<size_t>(b)) % 255) - 100);
          }
        }
      }
    }
  }
}

void masters_that_are_written_reach_the_device(void**) {
  Rank rank(2, ZERO_DTYPE_BF16, false, false);
  for (int32_t b = 0; b < rank.buckets(); ++b) {
    const uint64_t count = rank.context.bucket(b).members[0].count;
    std::vector<float> masters(count);
    for (size_t i = 0; i < count; ++i) masters[i] = static_cast<float>((i * 7 + 3) % 255) - 100;
    write_masters(rank.context, b, 0, count, masters.data());
    const std::vector<std::byte> wanted = rank.pattern(b, 3);
    assert_true(rank.read(rank.on_device(b), rank.bytes(b)) == wanted);
  }
}

// Bucket by bucket, as the step does it; what follows a bucket on the caller's stream reads it.
std::vector<std::vector<std::byte>> returned(Rank& rank, bool overlap, bool waits) {
  device::Device& device = *rank.context.device;
  const auto stream = device.create_stream(false); // that of the gathers
  ValueReturn values(rank.context, overlap);
  uint64_t total = 0;
  for (int32_t b = 0; b < rank.buckets(); ++b) total += rank.bytes(b);
  auto* seen = static_cast<std::byte*>(device.allocate_pinned(total));
  struct Gather {
    Rank* rank;
    std::byte* to;
  };
  std::vector<Gather> gathers(static_cast<size_t>(rank.buckets()));
  uint64_t at = 0;
  for (int32_t b = 0; b < rank.buckets(); ++b) {
    const std::vector<std::byte> updated = rank.pattern(b, 10 + b);
    std::memcpy(rank.on_host(b), updated.data(), updated.size());
    values.send(b);
    if (waits) values.wait(b);
    Gather& gather = gathers[static_cast<size_t>(b)];
    gather = {&rank, seen + at};
    stream->submit(
        [](void* context, uint64_t bucket, uint64_t) {
          const Gather& of = *static_cast<Gather*>(context);
          const auto number = static_cast<int32_t>(bucket);
          of.rank->context.device->copy(of.to, of.rank->on_device(number), of.rank->bytes(number));
        },
        &gather, static_cast<uint64_t>(b), 0);
    at += rank.bytes(b);
  }
  stream->drain();
  device.synchronize();
  values.wait_for_all();
  device.synchronize();
  std::vector<std::vector<std::byte>> result;
  at = 0;
  for (int32_t b = 0; b < rank.buckets(); ++b) {
    result.emplace_back(seen + at, seen + at + rank.bytes(b));
    at += rank.bytes(b);
  }
  device.release_pinned(seen, total);
  return result;
}

void what_was_updated_is_back_before_it_is_gathered(void**) {
  for (const int32_t stage : {1, 2, 3}) {
    for (const bool overlap : {false, true}) {
      Rank rank(stage, ZERO_DTYPE_BF16, false, false);
      const auto seen = returned(rank, overlap, /*waits=*/true);
      for (int32_t b = 0; b < rank.buckets(); ++b) {
        assert_true(seen[static_cast<size_t>(b)] == rank.pattern(b, 10 + b));
      }
    }
  }
}

void a_gather_that_does_not_wait_is_seen_in_the_values(void**) {
  Rank rank(2, ZERO_DTYPE_BF16, false, false);
  const auto seen = returned(rank, /*overlap=*/true, /*waits=*/false);
  bool stale = false;
  for (int32_t b = 0; b < rank.buckets(); ++b) {
    stale = stale || seen[static_cast<size_t>(b)] != rank.pattern(b, 10 + b);
    assert_true(rank.read(rank.on_device(b), rank.bytes(b)) == rank.pattern(b, 10 + b));
  }
  assert_true(stale);
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_region_lies_where_the_plan_says),
      cmocka_unit_test(masters_are_made_of_what_lies_on_the_device),
      cmocka_unit_test(masters_that_are_written_reach_the_device),
      cmocka_unit_test(what_was_updated_is_back_before_it_is_gathered),
      cmocka_unit_test(a_gather_that_does_not_wait_is_seen_in_the_values),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
