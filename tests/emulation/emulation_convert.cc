// Casts, sums, scaled copies and the master kept as a remainder, bit by bit as the host's.
// SPDX-License-Identifier: BSD-3-Clause
#include "cuda_cases.h"
#include "kernels/host/blocked_update.h"

namespace {

using namespace cuda_cases;

CudaConvert arguments(const DeviceArray& from, zero_dtype from_dtype, const DeviceArray& to,
                      zero_dtype to_dtype, uint64_t count) {
  CudaConvert c;
  c.src = from.data();
  c.src_dtype = from_dtype;
  c.dst = to.data();
  c.dst_dtype = to_dtype;
  c.count = count;
  return c;
}

template <typename Check>
void for_each_pair(const Check& check) {
  uint64_t seed = 1;
  for (const zero_dtype from : kDtypes) {
    for (const zero_dtype to : kDtypes) {
      for (const Numbers numbers : {Numbers::kFinite, Numbers::kAwkward}) {
        for (const uint64_t count : {0, 1, 8, 45, 300, 2048 + 99}) {
          if (kFewCases && count > 300) continue;
          check(random_array(from, count, numbers, seed),
                random_array(to, count, numbers, seed + 1), seed % 3);
          seed++;
        }
      }
    }
  }
}

void casts_are_the_hosts_to_the_bits_of_a_nan(void**) {
  for_each_pair([](const Array& source, Array target, uint64_t offset) {
    const DeviceArray from(source, offset), to(target, offset);
    const CudaConvert c = arguments(from, source.dtype(), to, target.dtype(), source.count());
    succeeded(table().cast(&c, nullptr));
    scalar_kernels().cast(source.data(), source.dtype(), target.data(), target.dtype(),
                          source.count());
    to.assert_is("cast", target, Nan::kSameBits);
    from.assert_is("its source", source, Nan::kSameBits);
  });
}

// Everything that 16 bits hold, and what lies around each rounding to them.
void every_number_of_sixteen_bits_is_cast_there_and_back(void**) {
  for (const zero_dtype narrow : {ZERO_DTYPE_FP16, ZERO_DTYPE_BF16}) {
    if (kFewCases) return;
    Array all(narrow, 65536), wide(ZERO_DTYPE_FP32, 65536);
    for (uint32_t i = 0; i < 65536; i++) all.set_bits(i, i);
    const DeviceArray from(all), to(wide);
    CudaConvert c = arguments(from, narrow, to, ZERO_DTYPE_FP32, 65536);
    succeeded(table().cast(&c, nullptr));
    scalar_kernels().cast(all.data(), narrow, wide.data(), ZERO_DTYPE_FP32, 65536);
    to.assert_is("wide", wide, Nan::kSameBits);
    for (const int32_t place : {0, 1, -1, 12, 13, 15, 16}) { // half a place, and a bit beside it
      for (const int32_t beside : {0, 1, -1}) {
        Array near = wide, rounded(narrow, 65536);
        for (uint32_t i = 0; i < 65536; i++) {
          const uint32_t moved = place > 1 ? (1u << (place - 1)) : static_cast<uint32_t>(place);
          near.set_bits(i, wide.bits(i) + moved + static_cast<uint32_t>(beside));
        }
        const DeviceArray source(near), target(rounded);
        c = arguments(source, ZERO_DTYPE_FP32, target, narrow, 65536);
        succeeded(table().cast(&c, nullptr));
        scalar_kernels().cast(near.data(), ZERO_DTYPE_FP32, rounded.data(), narrow, 65536);
        target.assert_is("rounded", rounded, Nan::kSameBits);
      }
    }
  }
}

void sums_are_the_hosts(void**) {
  for_each_pair([](const Array& source, Array target, uint64_t offset) {
    const DeviceArray from(source, offset), to(target, offset);
    const CudaConvert c = arguments(from, source.dtype(), to, target.dtype(), source.count());
    succeeded(table().add(&c, nullptr));
    scalar_kernels().add(source.data(), source.dtype(), target.data(), target.dtype(),
                         source.count());
    to.assert_is("add", target);
  });
}

void scaled_copies_are_the_hosts(void**) {
  for_each_pair([](const Array& source, const Array& other, uint64_t offset) {
    if (other.dtype() != ZERO_DTYPE_FP32) return;
    Array target = other;
    const DeviceArray from(source, offset), to(target, offset);
    CudaConvert c = arguments(from, source.dtype(), to, ZERO_DTYPE_FP32, source.count());
    c.factor = 1.0f / 3;
    succeeded(table().scale(&c, nullptr));
    scalar_kernels().scale(source.data(), source.dtype(), 1.0f / 3, target.floats(),
                           source.count());
    to.assert_is("scale", target);
  });
}

void a_scaled_copy_takes_the_steps_factor_unless_it_is_skipped(void**) {
  const Array source = random_array(ZERO_DTYPE_BF16, 100, Numbers::kFinite, 1);
  for (const int32_t skip : {0, 1}) {
    Array target = random_array(ZERO_DTYPE_FP32, 100, Numbers::kFinite, 2);
    const DeviceArray from(source), to(target);
    CudaStep record;
    record.factor = 1.0 / 7;
    record.skip = skip;
    const DeviceValues<CudaStep> step(record);
    CudaConvert c = arguments(from, ZERO_DTYPE_BF16, to, ZERO_DTYPE_FP32, 100);
    c.step = step.data();
    succeeded(table().scale(&c, nullptr));
    if (skip == 0) {
      scalar_kernels().scale(source.data(), ZERO_DTYPE_BF16, static_cast<float>(1.0 / 7),
                             target.floats(), 100);
    }
    to.assert_is("scale", target);
  }
}

// Masters at every distance from their parameter, both ends of each interval among them.
Array masters(uint64_t count) {
  Array master = random_array(ZERO_DTYPE_FP32, count, Numbers::kAwkward, 11);
  Random random(12);
  for (uint64_t i = 0; i < count; i += 2) {
    const uint32_t high = static_cast<uint32_t>(random.below(65536)) << 16;
    const uint32_t low[] = {0x7fff, 0x8000, 0x8001, 0x0000, 0xffff};
    master.set_bits(i, high | low[random.below(5)]);
  }
  return master;
}

void masters_are_split_and_joined_as_the_host_does(void**) {
  for (const bool has_ties : {false, true}) {
    for (const uint64_t count : {0, 1, 31, 32, 300, 2048 + 77}) {
      if (kFewCases && count > 300) continue;
      for (const uint64_t offset : {0, 1}) {
        const Array master = masters(count);
        Array model(ZERO_DTYPE_BF16, count), remainder(ZERO_DTYPE_BF16, count);
        std::vector<uint32_t> ties((count + 31) / 32, 0xdeadbeef);
        const DeviceArray device_master(master, offset), device_model(model, offset);
        const DeviceArray device_remainder(remainder, offset);
        const DeviceValues<uint32_t> device_ties(ties);
        CudaMaster m;
        m.master = device_master.floats();
        m.model = static_cast<uint16_t*>(device_model.data());
        m.remainder = static_cast<uint16_t*>(device_remainder.data());
        m.ties = has_ties ? device_ties.data() : nullptr;
        m.count = count;
        succeeded(table().split_master(&m, nullptr));
        split_master(master.data() == nullptr ? nullptr : static_cast<const float*>(master.data()),
                     static_cast<uint16_t*>(model.data()), static_cast<uint16_t*>(remainder.data()),
                     has_ties ? ties.data() : nullptr, count);
        device_model.assert_is("model", model, Nan::kSameBits);
        device_remainder.assert_is("remainder", remainder, Nan::kSameBits);
        assert_true(device_ties.back() == ties);

        Array joined(ZERO_DTYPE_FP32, count);
        const DeviceArray device_joined(joined, offset);
        m.master = device_joined.floats();
        succeeded(table().join_master(&m, nullptr));
        join_master(static_cast<const uint16_t*>(model.data()),
                    static_cast<const uint16_t*>(remainder.data()),
                    has_ties ? ties.data() : nullptr, joined.floats(), count);
        device_joined.assert_is("joined", joined, Nan::kSameBits);
      }
    }
  }
}

} // namespace

int main() {
  if (!belongs_to_the_tier()) return 77;
  const CMUnitTest tests[] = {
      cmocka_unit_test(casts_are_the_hosts_to_the_bits_of_a_nan),
      cmocka_unit_test(every_number_of_sixteen_bits_is_cast_there_and_back),
      cmocka_unit_test(sums_are_the_hosts),
      cmocka_unit_test(scaled_copies_are_the_hosts),
      cmocka_unit_test(a_scaled_copy_takes_the_steps_factor_unless_it_is_skipped),
      cmocka_unit_test(masters_are_split_and_joined_as_the_host_does),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
