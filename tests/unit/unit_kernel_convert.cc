// Casts, sums and scaled copies: every 16-bit number there is, nearest-even by its definition, and
// every vector target bit by bit against the scalar kernel.
// SPDX-License-Identifier: BSD-3-Clause
#include <cstdlib>
#include <string>

#include "kernel_cases.h"

namespace {

using namespace kernel_cases;

// The value of a finite fp16 or bf16 by the definition of the format.
double value_of(uint16_t bits, int exponent_bits, int fraction_bits) {
  const int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, 1 - bias - fraction_bits)
                    : std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

struct Format {
  zero_dtype dtype;
  int exponent_bits, fraction_bits;
  uint16_t infinity;
};
constexpr Format kFormats[] = {{ZERO_DTYPE_FP16, 5, 10, 0x7c00}, {ZERO_DTYPE_BF16, 8, 7, 0x7f80}};

void every_16_bit_number_is_widened_to_its_value(void**) {
  for (int32_t i = 0; i < host_kernel_table_count(); i++) {
    for (const Format& format : kFormats) {
      Array from(format.dtype, 65536), to(ZERO_DTYPE_FP32, 65536);
      for (uint32_t bits = 0; bits < 65536; bits++) from.set_bits(bits, bits);
      host_kernel_table(i).cast(from.data(), format.dtype, to.data(), ZERO_DTYPE_FP32, 65536);
      for (uint32_t bits = 0; bits < 65536; bits++) {
        const uint32_t magnitude = bits & 0x7fff;
        const bool negative = (bits & 0x8000) != 0;
        const float value = to.at(bits);
        assert_true(std::signbit(value) == negative);
        if (magnitude > format.infinity) {
          assert_true(std::isnan(value));
        } else if (magnitude == format.infinity) {
          assert_true(std::isinf(value));
        } else {
          assert_true(static_cast<double>(value) == value_of(static_cast<uint16_t>(bits),
                                                             format.exponent_bits,
                                                             format.fraction_bits));
        }
      }
    }
  }
}

void every_16_bit_number_comes_back_from_fp32(void**) {
  for (int32_t i = 0; i < host_kernel_table_count(); i++) {
    for (const Format& format : kFormats) {
      Array from(format.dtype, 65536), wide(ZERO_DTYPE_FP32, 65536), back(format.dtype, 65536);
      for (uint32_t bits = 0; bits < 65536; bits++) from.set_bits(bits, bits);
      const KernelTable& table = host_kernel_table(i);
      table.cast(from.data(), format.dtype, wide.data(), ZERO_DTYPE_FP32, 65536);
      table.cast(wide.data(), ZERO_DTYPE_FP32, back.data(), format.dtype, 65536);
      for (uint32_t bits = 0; bits < 65536; bits++) {
        if ((bits & 0x7fff) > format.infinity) {
          assert_true(std::isnan(back.at(bits)));
          assert_int_equal(back.bits(bits) & 0x8000, bits & 0x8000);
        } else {
          assert_int_equal(back.bits(bits), bits);
        }
      }
    }
  }
}

// Nearest by comparing the two neighbours' distances, which doubles hold exactly; even at a tie.
void narrowing_takes_the_nearest_and_at_a_tie_the_even_number(void**) {
  for (const Format& format : kFormats) {
    const auto value = [&](uint32_t bits) {
      return value_of(static_cast<uint16_t>(bits), format.exponent_bits, format.fraction_bits);
    };
    // Infinity stands one step above the largest number when a distance to it is asked.
    const auto ladder = [&](uint32_t bits) {
      return bits < format.infinity ? value(bits) : 2 * value(bits - 1) - value(bits - 2);
    };
    Random random(11);
    std::vector<float> values;
    for (uint32_t bits = 0; bits < format.infinity; bits++) {
      const double middle = (ladder(bits) + ladder(bits + 1)) / 2; // a tie, exact in fp32
      const float tie = static_cast<float>(middle);
      values.push_back(tie);
      values.push_back(std::nextafter(tie, 0.0f));
      values.push_back(std::nextafter(tie, INFINITY));
    }
    for (int k = 0; k < 100000; k++) {
      const float any = float_of(static_cast<uint32_t>(random.next()) & 0x7fffffffu);
      if (std::isfinite(any)) values.push_back(any);
    }
    for (int32_t i = 0; i < host_kernel_table_count(); i++) {
      for (const bool negative : {false, true}) {
        Array from(ZERO_DTYPE_FP32, values.size()), to(format.dtype, values.size());
        for (uint64_t k = 0; k < values.size(); k++) {
          from.set(k, negative ? -values[k] : values[k]);
        }
        host_kernel_table(i).cast(from.data(), ZERO_DTYPE_FP32, to.data(), format.dtype,
                                  values.size());
        for (uint64_t k = 0; k < values.size(); k++) {
          assert_true(((to.bits(k) & 0x8000) != 0) == negative);
          const uint32_t got = to.bits(k) & 0x7fff;
          assert_true(got <= format.infinity);
          const double wanted = values[k];
          if (got == format.infinity && wanted >= ladder(got)) continue;
          const double distance = std::fabs(wanted - ladder(got));
          if (got > 0) {
            const double below = std::fabs(wanted - ladder(got - 1));
            assert_true(distance < below || (distance == below && got % 2 == 0));
          }
          if (got < format.infinity) {
            const double above = std::fabs(wanted - ladder(got + 1));
            assert_true(distance < above || (distance == above && got % 2 == 0));
          }
        }
      }
    }
  }
}

void a_nan_stays_a_quiet_nan_of_its_sign(void**) {
  for (int32_t i = 0; i < host_kernel_table_count(); i++) {
    for (const Format& format : kFormats) {
      // The last would round up to infinity and past it; the first loses all its payload.
      const uint32_t nans[] = {0x7f800001, 0xff800001, 0x7fc00000, 0x7fffffff, 0xffffffff};
      Array from(ZERO_DTYPE_FP32, 5), to(format.dtype, 5);
      for (uint64_t k = 0; k < 5; k++) from.set_bits(k, nans[k]);
      host_kernel_table(i).cast(from.data(), ZERO_DTYPE_FP32, to.data(), format.dtype, 5);
      for (uint64_t k = 0; k < 5; k++) {
        const uint32_t quiet = 1u << (format.fraction_bits - 1);
        assert_int_equal(to.bits(k) & (format.infinity | quiet), format.infinity | quiet);
        assert_int_equal(to.bits(k) >> 15, nans[k] >> 31);
      }
    }
  }
}

template <typename Operation>
void compare(const char* name, Nan nan, const Operation& operation) {
  uint64_t seed = 1;
  for (const zero_dtype from : kDtypes) {
    for (const zero_dtype to : kDtypes) {
      for (uint64_t count = 0; count <= 5000; count += count < 200 ? 1 : 1600) {
        Random random(seed);
        Array src(from, count, seed % 7), dst(to, count, seed % 3);
        src.fill(random, Numbers::kAwkward);
        dst.fill(random, Numbers::kAwkward);
        Array wanted = dst;
        operation(scalar_kernels(), src, wanted);
        for (const KernelTable* table : vector_tables()) {
          Array got = dst;
          operation(*table, src, got);
          assert_same((std::string(table->name) + ", " + name).c_str(), wanted, got, nan);
        }
        seed++;
      }
    }
  }
}

void every_target_casts_as_the_scalar_kernel(void**) {
  compare("cast", Nan::kSameBits, [](const KernelTable& table, const Array& src, Array& dst) {
    table.cast(src.data(), src.dtype(), dst.data(), dst.dtype(), src.count());
  });
}

void every_target_adds_as_the_scalar_kernel(void**) {
  compare("add", Nan::kAny, [](const KernelTable& table, const Array& src, Array& dst) {
    table.add(src.data(), src.dtype(), dst.data(), dst.dtype(), src.count());
  });
}

void every_target_scales_as_the_scalar_kernel(void**) {
  for (const float factor : {0.3f, -0.0f, 0x1p-140f}) {
    compare("scale", Nan::kAny, [&](const KernelTable& table, const Array& src, Array& dst) {
      if (dst.dtype() != ZERO_DTYPE_FP32) return;
      table.scale(src.data(), src.dtype(), factor, dst.floats(), src.count());
    });
  }
}

void add_and_scale_do_what_they_say(void**) {
  for (int32_t i = 0; i < host_kernel_table_count(); i++) {
    Array src(ZERO_DTYPE_BF16, 50), dst(ZERO_DTYPE_FP16, 50), wide(ZERO_DTYPE_FP32, 50);
    for (uint64_t k = 0; k < 50; k++) {
      src.set(k, 1.5f);
      dst.set(k, static_cast<float>(k));
    }
    host_kernel_table(i).add(src.data(), src.dtype(), dst.data(), dst.dtype(), 50);
    for (uint64_t k = 0; k < 50; k++) assert_true(dst.at(k) == static_cast<float>(k) + 1.5f);
    host_kernel_table(i).scale(dst.data(), dst.dtype(), 0.25f, wide.floats(), 50);
    for (uint64_t k = 0; k < 50; k++) {
      assert_true(wide.at(k) == (static_cast<float>(k) + 1.5f) / 4);
    }
  }
}

void the_scalar_kernels_are_the_first_table(void**) {
  assert_ptr_equal(&host_kernel_table(0), &scalar_kernels());
  assert_string_equal(scalar_kernels().name, "scalar");
  for (int32_t i = 0; i < host_kernel_table_count(); i++) {
    for (int32_t k = 0; k < i; k++) {
      assert_string_not_equal(host_kernel_table(i).name, host_kernel_table(k).name);
    }
  }
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_16_bit_number_is_widened_to_its_value),
      cmocka_unit_test(every_16_bit_number_comes_back_from_fp32),
      cmocka_unit_test(narrowing_takes_the_nearest_and_at_a_tie_the_even_number),
      cmocka_unit_test(a_nan_stays_a_quiet_nan_of_its_sign),
      cmocka_unit_test(every_target_casts_as_the_scalar_kernel),
      cmocka_unit_test(every_target_adds_as_the_scalar_kernel),
      cmocka_unit_test(every_target_scales_as_the_scalar_kernel),
      cmocka_unit_test(add_and_scale_do_what_they_say),
      cmocka_unit_test(the_scalar_kernels_are_the_first_table),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
