// Updates of masters and states of 16 bits and of masters kept as a remainder: against the fp32
// kernel on widened copies, and the remainder's code against every low half.
// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/host/blocked_update.h"
#include "update_cases.h"

namespace {

using namespace kernel_cases;

AdamConstants adam_constants() {
  return {0.37f, 0.9f, 0.1f, 0.999f, 0.001f, 1e-8f, 3e-3f, 1.7f, 0.9997f, 0, true};
}

void update_adam(const KernelTable& table, const UpdateStreams& s, const void* constants) {
  table.adam(s, *static_cast<const AdamConstants*>(constants));
}

// Element by element, by the numbers' own functions.
Array converted(const Array& from, zero_dtype dtype) {
  Array to(dtype, from.count());
  for (uint64_t i = 0; i < from.count(); i++) to.set(i, from.at(i));
  return to;
}

WideStreams wide_streams(State& s, Array& master, Array& first, Array& second) {
  WideStreams w;
  w.master = master.data();
  w.master_dtype = master.dtype();
  w.model = s.has_model ? s.model.data() : nullptr;
  w.model_dtype = s.model.dtype();
  w.grad = s.grad.data();
  w.grad_dtype = s.grad.dtype();
  w.state[0] = first.data();
  w.state[1] = second.data();
  w.state_dtype = first.dtype();
  w.count = master.count();
  return w;
}

void check_narrow(const KernelTable& table, zero_dtype master_dtype, zero_dtype state_dtype,
                  zero_dtype model_dtype, bool has_model, uint64_t count) {
  State s = make_state(ZERO_DTYPE_BF16, model_dtype, has_model, count, 3, Numbers::kFinite, count);
  Array master = converted(s.master, master_dtype);
  Array first = converted(s.first, state_dtype), second = converted(s.second, state_dtype);

  State wide = s;
  for (uint64_t i = 0; i < count; i++) {
    wide.master.set(i, master.at(i));
    wide.first.set(i, first.at(i));
    wide.second.set(i, second.at(i));
  }
  scalar_kernels().adam(wide.streams(), adam_constants());
  const Array wanted_master = converted(wide.master, master_dtype);
  const Array wanted_model = has_model ? converted(wanted_master, model_dtype) : s.model;

  const AdamConstants constants = adam_constants();
  update_blocked(table, wide_streams(s, master, first, second), update_adam, &constants);
  assert_same("master", wanted_master, master);
  assert_same("model", wanted_model, s.model);
  assert_same("first state", converted(wide.first, state_dtype), first);
  assert_same("second state", converted(wide.second, state_dtype), second);
}

void narrow_masters_and_states_are_updated_in_fp32_and_rounded(void**) {
  for (int32_t i = 0; i < host_kernel_table_count(); i++) {
    for (const zero_dtype master : kDtypes) {
      for (const zero_dtype state : kDtypes) {
        for (const zero_dtype model : {ZERO_DTYPE_FP16, ZERO_DTYPE_BF16}) {
          for (const uint64_t count : {0u, 1u, 37u, 2048u, 2049u, 5000u}) {
            check_narrow(host_kernel_table(i), master, state, model, true, count);
          }
        }
        check_narrow(host_kernel_table(i), master, state, ZERO_DTYPE_FP32, false, 2100);
      }
    }
  }
}

void update_sgd(const KernelTable& table, const UpdateStreams& s, const void* constants) {
  table.sgd(s, *static_cast<const SgdConstants*>(constants));
}

void a_rule_without_states_needs_none(void**) {
  const SgdConstants constants = {0.5f, 0.25f, 0, 1, 0, false, true}; // 3 - 0.25 * (0.5 * 8)
  for (int32_t i = 0; i < host_kernel_table_count(); i++) {
    Array master(ZERO_DTYPE_BF16, 37), grad(ZERO_DTYPE_FP32, 37);
    for (uint64_t k = 0; k < 37; k++) {
      master.set(k, 3);
      grad.set(k, 8);
    }
    WideStreams w;
    w.master = master.data();
    w.master_dtype = ZERO_DTYPE_BF16;
    w.grad = grad.data();
    w.state_dtype = ZERO_DTYPE_BF16;
    w.count = 37;
    update_blocked(host_kernel_table(i), w, update_sgd, &constants);
    for (uint64_t k = 0; k < 37; k++) assert_true(master.at(k) == 2);
  }
}

// What stands for M without ties: M, or one unit less where M lies half a place above an even
// parameter that is not zero.
uint32_t kept(uint32_t bits) {
  const bool upper_end = (bits & 0x1ffffu) == 0x8000u && (bits & 0x7fff0000u) != 0;
  return bits - (upper_end ? 1 : 0);
}

// Every low half of many high halves: zeros, denormals, around 1, the largest, odd and even.
void a_remainder_completes_every_master(void**) {
  constexpr uint16_t kHigh[] = {0x0000, 0x0001, 0x0002, 0x007f, 0x0080, 0x3f7f, 0x3f80, 0x3f81,
                                0x7f7e, 0x7f7f, 0x8000, 0x8001, 0x8080, 0xbf80, 0xff7e, 0xff7f};
  std::vector<float> masters(1 << 16), back(1 << 16);
  std::vector<uint16_t> model(1 << 16), remainder(1 << 16);
  std::vector<uint32_t> ties((1 << 16) / 32);
  for (const uint16_t high : kHigh) {
    for (uint32_t low = 0; low < 1 << 16; low++) {
      masters[low] = float_of(static_cast<uint32_t>(high) << 16 | low);
    }
    split_master(masters.data(), model.data(), remainder.data(), ties.data(), 1 << 16);
    join_master(model.data(), remainder.data(), ties.data(), back.data(), 1 << 16);
    for (uint32_t low = 0; low < 1 << 16; low++) {
      assert_int_equal(model[low], bf16_from_float(masters[low]));
      assert_int_equal(bits_of(back[low]), bits_of(masters[low]));
    }
    split_master(masters.data(), model.data(), remainder.data(), nullptr, 1 << 16);
    join_master(model.data(), remainder.data(), nullptr, back.data(), 1 << 16);
    for (uint32_t low = 0; low < 1 << 16; low++) {
      assert_int_equal(model[low], bf16_from_float(masters[low]));
      assert_int_equal(bits_of(back[low]), kept(bits_of(masters[low])));
      assert_int_equal(bf16_from_float(back[low]), model[low]);
    }
  }
}

void infinities_stay_and_a_nan_stays_a_nan(void**) {
  for (const uint32_t bits : {0x7f800000u, 0xff800000u, 0x7f800001u, 0x7f808000u, 0xff808000u,
                              0x7fc00000u, 0x7fffffffu, 0xffffffffu, 0x7fff8000u}) {
    for (const bool with_ties : {false, true}) {
      const float master = float_of(bits);
      float back = 0;
      uint16_t model, remainder;
      uint32_t word = 0;
      uint32_t* const ties = with_ties ? &word : nullptr;
      split_master(&master, &model, &remainder, ties, 1);
      join_master(&model, &remainder, ties, &back, 1);
      assert_true(std::isnan(master) ? std::isnan(back) : bits_of(back) == bits);
    }
  }
}

// Many updates, a third of the masters begun at ties of both kinds: with the bitmap the parameters
// and the masters are those of an fp32 master, always; also in two parts.
void a_remainder_with_ties_follows_an_fp32_master_bit_by_bit(void**) {
  constexpr uint64_t kCount = 5000;
  for (int32_t i = 0; i < host_kernel_table_count(); i++) {
    const KernelTable& table = host_kernel_table(i);
    State wide = make_state(ZERO_DTYPE_BF16, ZERO_DTYPE_BF16, true, kCount, 0, Numbers::kFinite, 7);
    for (uint64_t k = 0; k < kCount; k += 3) {
      wide.master.set_bits(k, (wide.master.bits(k) & 0xffff0000u) | 0x8000u);
    }
    State narrow = wide;
    std::vector<uint16_t> remainder(kCount);
    std::vector<uint32_t> ties((kCount + 31) / 32);
    auto* const model = static_cast<uint16_t*>(narrow.model.data());
    split_master(wide.master.floats(), model, remainder.data(), ties.data(), kCount);
    for (uint64_t t = 0; t < 20; t++) {
      // A step of zero leaves the ties where they are.
      AdamConstants constants = adam_constants();
      constants.step_size = t % 4 == 0 ? 0 : 3e-3f;
      constants.decay_factor = t % 4 == 0 ? 1 : 0.9997f;
      table.adam(wide.streams(), constants);
      const uint64_t parts[] = {0, 32 * t * 5, kCount};
      for (int part = 0; part < 2; part++) {
        const uint64_t begin = parts[part];
        WideStreams w;
        w.remainder = remainder.data() + begin;
        w.ties = ties.data() + begin / 32;
        w.model = model + begin;
        w.model_dtype = ZERO_DTYPE_BF16;
        w.grad = static_cast<const uint16_t*>(narrow.grad.data()) + begin;
        w.grad_dtype = ZERO_DTYPE_BF16;
        w.state[0] = narrow.first.floats() + begin;
        w.state[1] = narrow.second.floats() + begin;
        w.count = parts[part + 1] - begin;
        update_blocked(table, w, update_adam, &constants);
      }
      join_master(model, remainder.data(), ties.data(), narrow.master.floats(), kCount);
      assert_same_state(table.name, wide, narrow);
    }
  }
}

// Without it: each update starts from the master as it is kept and writes the right parameter.
void a_remainder_alone_is_one_unit_off_at_upper_ties_only(void**) {
  constexpr uint64_t kCount = 3000;
  for (int32_t i = 0; i < host_kernel_table_count(); i++) {
    const KernelTable& table = host_kernel_table(i);
    State wide = make_state(ZERO_DTYPE_FP32, ZERO_DTYPE_BF16, true, kCount, 0, Numbers::kFinite, 8);
    for (uint64_t k = 0; k < kCount; k += 3) {
      wide.master.set_bits(k, (wide.master.bits(k) & 0xffff0000u) | 0x8000u);
    }
    State narrow = wide;
    std::vector<uint16_t> remainder(kCount);
    auto* const model = static_cast<uint16_t*>(narrow.model.data());
    split_master(wide.master.floats(), model, remainder.data(), nullptr, kCount);
    for (int t = 0; t < 10; t++) {
      for (uint64_t k = 0; k < kCount; k++) wide.master.set_bits(k, kept(wide.master.bits(k)));
      AdamConstants constants = adam_constants();
      constants.step_size = t == 0 ? 0 : 3e-3f;
      constants.decay_factor = t == 0 ? 1 : 0.9997f;
      table.adam(wide.streams(), constants);
      WideStreams w;
      w.remainder = remainder.data();
      w.model = model;
      w.model_dtype = ZERO_DTYPE_BF16;
      w.grad = narrow.grad.data();
      w.state[0] = narrow.first.floats();
      w.state[1] = narrow.second.floats();
      w.count = kCount;
      update_blocked(table, w, update_adam, &constants);
      assert_same("model", wide.model, narrow.model);
    }
  }
}

struct Direction {
  LambConstants constants;
  const float* grad;
  float* direction;
};

void update_lamb(const KernelTable& table, const UpdateStreams& s, const void* context) {
  const Direction& d = *static_cast<const Direction*>(context);
  const float* const grad = static_cast<const float*>(s.grad);
  table.lamb(s, d.constants, d.direction + (grad - d.grad));
}

// A rule that reads the master only leaves parameter, remainder and ties as they were.
void a_direction_is_made_from_a_remainder(void**) {
  constexpr uint64_t kCount = 4500;
  const LambConstants constants = {0.5f, 0.9f, 0.1f, 0.999f, 0.001f, 1e-8f, 0.01f, false};
  for (int32_t i = 0; i < host_kernel_table_count(); i++) {
    State wide = make_state(ZERO_DTYPE_FP32, ZERO_DTYPE_BF16, true, kCount, 0, Numbers::kFinite, 9);
    wide.master.set_bits(0, 0x3f808000);
    State narrow = wide;
    std::vector<uint16_t> remainder(kCount);
    std::vector<uint32_t> ties((kCount + 31) / 32);
    auto* const model = static_cast<uint16_t*>(narrow.model.data());
    split_master(wide.master.floats(), model, remainder.data(), ties.data(), kCount);
    const Array model_before = narrow.model;
    const std::vector<uint16_t> remainder_before = remainder;
    const std::vector<uint32_t> ties_before = ties;
    Array wanted(ZERO_DTYPE_FP32, kCount), got(ZERO_DTYPE_FP32, kCount);
    scalar_kernels().lamb(wide.streams(), constants, wanted.floats());
    WideStreams w;
    w.remainder = remainder.data();
    w.ties = ties.data();
    w.model = model;
    w.model_dtype = ZERO_DTYPE_BF16;
    w.grad = narrow.grad.data();
    w.state[0] = narrow.first.floats();
    w.state[1] = narrow.second.floats();
    w.count = kCount;
    const Direction direction = {constants, narrow.grad.floats(), got.floats()};
    update_blocked(host_kernel_table(i), w, update_lamb, &direction);
    assert_same("direction", wanted, got);
    assert_same("model", model_before, narrow.model, Nan::kSameBits);
    assert_true(remainder == remainder_before && ties == ties_before);
    assert_int_not_equal(ties[0] & 1, 0);
  }
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(narrow_masters_and_states_are_updated_in_fp32_and_rounded),
      cmocka_unit_test(a_rule_without_states_needs_none),
      cmocka_unit_test(a_remainder_completes_every_master),
      cmocka_unit_test(infinities_stay_and_a_nan_stays_a_nan),
      cmocka_unit_test(a_remainder_with_ties_follows_an_fp32_master_bit_by_bit),
      cmocka_unit_test(a_remainder_alone_is_one_unit_off_at_upper_ties_only),
      cmocka_unit_test(a_direction_is_made_from_a_remainder),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
