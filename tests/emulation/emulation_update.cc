// The fused passes: every rule on every kind of streams, bit by bit as the host's scalar kernels.
// SPDX-License-Identifier: BSD-3-Clause
#include "cuda_cases.h"
#include "kernels/host/blocked_update.h"

namespace {

using namespace cuda_cases;

enum class Master { kPlain, kNarrow, kRemainder, kTies };

struct Kind {
  Master master;
  zero_dtype master_dtype, grad, state;
  bool has_model;
  zero_dtype model;

  std::string text() const {
    return "master " + std::to_string(static_cast<int>(master)) + " of dtype " +
           std::to_string(master_dtype) + ", grad " + std::to_string(grad) + ", state " +
           std::to_string(state) + (has_model ? ", model " + std::to_string(model) : "");
  }
};

// A rule as the host calls it, its constants for each of three parameters.
struct Rule {
  const char* name;
  int32_t rule;
  int states;
  BlockUpdate host;
  CudaConstants constants[3];
  bool has_direction;
};

constexpr int kParams = 3; // the last one is not active

template <auto Member, auto Table>
void call(const KernelTable& kernels, const UpdateStreams& streams, const void* constants) {
  (kernels.*Table)(streams, static_cast<const CudaConstants*>(constants)->*Member);
}
void call_apply(const KernelTable& kernels, const UpdateStreams& streams, const void* constants) {
  kernels.apply(streams, static_cast<const CudaConstants*>(constants)->apply,
                static_cast<const float*>(streams.grad));
}

template <typename Set>
Rule make_rule(const char* name, int32_t rule, int states, BlockUpdate host, Set set) {
  Rule r = {name, rule, states, host, {}, false};
  for (int p = 0; p < kParams; p++) {
    std::memset(static_cast<void*>(&r.constants[p]), 0, sizeof(CudaConstants));
    r.constants[p].active = p + 1 < kParams ? 1 : 0;
    set(r.constants[p], static_cast<float>(p));
  }
  return r;
}

AdamConstants adam_constants(float p, bool decoupled) {
  return {0.125f - p, 0.9f,   0.1f,   0.999f,    0.001f,   1e-8f,
          0.01f + p,  1.625f, 0.997f, 0.01f + p, decoupled};
}

std::vector<Rule> all_rules() {
  std::vector<Rule> rules;
  const BlockUpdate adam = &call<&CudaConstants::adam, &KernelTable::adam>;
  rules.push_back(make_rule("adamw", kCudaAdam, 2, adam,
                            [](CudaConstants& c, float p) { c.adam = adam_constants(p, true); }));
  rules.push_back(make_rule("adam", kCudaAdam, 2, adam,
                            [](CudaConstants& c, float p) { c.adam = adam_constants(p, false); }));
  const BlockUpdate sgd = &call<&CudaConstants::sgd, &KernelTable::sgd>;
  rules.push_back(make_rule("sgd", kCudaSgd, 0, sgd, [](CudaConstants& c, float p) {
    c.sgd = {0.5f, 0.1f + p, 0, 1, 0.01f * p, false, false};
  }));
  rules.push_back(make_rule("sgd, momentum", kCudaSgd, 1, sgd, [](CudaConstants& c, float p) {
    c.sgd = {0.5f, 0.1f + p, 0.9f, 0.75f, 0.01f * p, p == 0, p == 1};
  }));
  rules.push_back(make_rule("adagrad", kCudaAdagrad, 1,
                            &call<&CudaConstants::adagrad, &KernelTable::adagrad>,
                            [](CudaConstants& c, float p) {
                              c.adagrad = {0.5f, 0.1f + p, 1e-10f, 0.01f * p};
                            }));
  rules.push_back(make_rule("lion", kCudaLion, 1, &call<&CudaConstants::lion, &KernelTable::lion>,
                            [](CudaConstants& c, float p) {
                              c.lion = {0.5f, 0.9f, 0.1f, 0.99f, 0.01f, 0.1f + p, 0.999f};
                            }));
  rules.push_back(make_rule("apply", kCudaApply, 0, &call_apply, [](CudaConstants& c, float p) {
    c.apply = {0.1f + p, 0.999f};
  }));
  return rules;
}

// Every dtype of gradient and of value beside fp32 masters and states; then the narrow ones.
std::vector<Kind> all_kinds() {
  std::vector<Kind> kinds;
  constexpr zero_dtype fp32 = ZERO_DTYPE_FP32, bf16 = ZERO_DTYPE_BF16;
  for (const zero_dtype grad : kDtypes) {
    kinds.push_back({Master::kPlain, fp32, grad, fp32, false, fp32});
    for (const zero_dtype model : kDtypes) {
      kinds.push_back({Master::kPlain, fp32, grad, fp32, true, model});
    }
    for (const zero_dtype state : kDtypes) {
      kinds.push_back({Master::kRemainder, fp32, grad, state, true, bf16});
      kinds.push_back({Master::kTies, fp32, grad, state, true, bf16});
      for (const zero_dtype narrow : {ZERO_DTYPE_FP16, ZERO_DTYPE_BF16}) {
        kinds.push_back({Master::kNarrow, narrow, grad, state, false, narrow});
        kinds.push_back({Master::kNarrow, narrow, grad, state, true, bf16});
        if (state != fp32) kinds.push_back({Master::kPlain, fp32, grad, state, true, narrow});
      }
    }
  }
  return kinds;
}

struct Case {
  uint64_t count;
  uint32_t tile;
  uint64_t offset; // of every stream, from an aligned address
  Numbers numbers;
  bool own_values; // each tile's value lies in memory of its own
};

struct Streams {
  Array master, model, remainder, grad, first, second;
  std::vector<uint32_t> ties;

  Streams(const Kind& kind, const Case& c, uint64_t seed)
      : master(random_array(kind.master_dtype, c.count, c.numbers, seed)),
        model(random_array(kind.model, c.count, c.numbers, seed + 1)),
        remainder(random_array(ZERO_DTYPE_BF16, c.count, Numbers::kAwkward, seed + 2)),
        grad(random_array(kind.grad, c.count, c.numbers, seed + 3)),
        first(random_array(kind.state, c.count, c.numbers, seed + 4)),
        second(random_array(kind.state, c.count, c.numbers, seed + 5)),
        ties((c.count + 31) / 32) {
    Random random(seed + 6);
    if (c.numbers == Numbers::kFinite) {
      for (uint64_t i = 0; i < c.count; i++) second.set(i, std::fabs(second.at(i)));
    }
    for (uint64_t i = 0; i < c.count; i++) { // remainders in the middle are the interesting ones
      if (random.below(3) == 0)
        remainder.set_bits(i, 0x7fffu + static_cast<uint32_t>(random.below(3)));
    }
    for (uint32_t& word : ties) word = static_cast<uint32_t>(random.next() & random.next());
    if (c.count % 32 != 0) ties.back() &= (1u << c.count % 32) - 1;
  }

  WideStreams host(const Kind& kind, int states) {
    WideStreams s;
    const bool whole = kind.master == Master::kPlain || kind.master == Master::kNarrow;
    if (whole) s.master = master.data();
    s.master_dtype = kind.master_dtype;
    if (!whole) s.remainder = static_cast<uint16_t*>(remainder.data());
    if (kind.master == Master::kTies) s.ties = ties.data();
    if (kind.has_model) s.model = model.data();
    s.model_dtype = kind.model;
    s.grad = grad.data();
    s.grad_dtype = kind.grad;
    if (states > 0) s.state[0] = first.data();
    if (states > 1) s.state[1] = second.data();
    s.state_dtype = kind.state;
    return s;
  }
};

void* moved(void* p, zero_dtype dtype, uint64_t by) {
  return p == nullptr ? nullptr : static_cast<char*>(p) + by * size_of(dtype);
}

void update_on_host(const Rule& rule, const Kind& kind, const std::vector<CudaTile>& tiles,
                    Streams* streams) {
  for (const CudaTile& tile : tiles) {
    const CudaConstants& constants = rule.constants[tile.param];
    if (constants.active == 0) continue;
    WideStreams s = streams->host(kind, rule.states);
    s.master = moved(s.master, kind.master_dtype, tile.at);
    s.model = moved(s.model, kind.model, tile.at);
    if (s.remainder != nullptr) s.remainder += tile.at;
    if (s.ties != nullptr) s.ties += tile.at / 32;
    s.grad = moved(const_cast<void*>(s.grad), kind.grad, tile.at);
    for (void*& state : s.state) state = moved(state, kind.state, tile.at);
    s.count = tile.count;
    update_blocked(scalar_kernels(), s, rule.host, &constants);
  }
}

// Masters as they are read back: a NaN may leave any remainder.
Array joined(const Array& model, const Array& remainder, const std::vector<uint32_t>& ties,
             bool has_ties) {
  Array master(ZERO_DTYPE_FP32, model.count());
  join_master(static_cast<const uint16_t*>(model.data()),
              static_cast<const uint16_t*>(remainder.data()), has_ties ? ties.data() : nullptr,
              master.floats(), model.count());
  return master;
}

void compare(const Rule& rule, const Kind& kind, const Case& c, uint64_t seed) {
  const std::string what = std::string(rule.name) + ", " + kind.text() + ", count " +
                           std::to_string(c.count) + ", tiles of " + std::to_string(c.tile) +
                           ", offset " + std::to_string(c.offset);
  Streams streams(kind, c, seed);
  const DeviceArray master(streams.master, c.offset), model(streams.model, c.offset);
  const DeviceArray remainder(streams.remainder, c.offset), grad(streams.grad, c.offset);
  const DeviceArray first(streams.first, c.offset), second(streams.second, c.offset);
  const DeviceValues<uint32_t> ties(streams.ties);
  const bool whole = kind.master == Master::kPlain || kind.master == Master::kNarrow;
  std::vector<CudaTile> tiles = cut(c.count, c.tile, kParams);
  for (CudaTile& tile : tiles) {
    if (!c.own_values) break;
    const DeviceArray& value = kind.has_model ? model : master;
    tile.value = moved(value.data(), kind.has_model ? kind.model : kind.master_dtype, tile.at);
  }
  const DeviceValues<CudaTile> device_tiles(tiles);
  const DeviceValues<CudaConstants> constants(
      std::vector<CudaConstants>(rule.constants, rule.constants + kParams));
  CudaUpdate u;
  u.tiles = device_tiles.data();
  u.tile_count = static_cast<uint32_t>(tiles.size());
  u.rule = rule.rule;
  u.constants = constants.data();
  if (whole && !(c.own_values && !kind.has_model)) u.master = master.data();
  u.master_dtype = kind.master_dtype;
  if (!whole) u.remainder = static_cast<uint16_t*>(remainder.data());
  if (kind.master == Master::kTies) u.ties = ties.data();
  u.has_model = kind.has_model ? 1 : 0;
  if (kind.has_model && !c.own_values) u.model = model.data();
  u.model_dtype = kind.model;
  u.grad = grad.data();
  u.grad_dtype = kind.grad;
  if (rule.states > 0) u.state[0] = first.data();
  if (rule.states > 1) u.state[1] = second.data();
  u.state_dtype = kind.state;
  succeeded(table().update(&u, nullptr));

  update_on_host(rule, kind, tiles, &streams);
  model.assert_is(what + ", model", streams.model);
  grad.assert_is(what + ", grad", streams.grad, Nan::kSameBits);
  first.assert_is(what + ", first state", streams.first);
  second.assert_is(what + ", second state", streams.second);
  if (whole) {
    master.assert_is(what + ", master", streams.master);
    return;
  }
  const bool has_ties = kind.master == Master::kTies;
  const std::vector<uint32_t> new_ties = ties.back();
  assert_same((what + ", joined master").c_str(),
              joined(streams.model, streams.remainder, streams.ties, has_ties),
              joined(model.back(), remainder.back(), new_ties, has_ties));
  if (has_ties && c.count % 32 != 0) assert_int_equal(new_ties.back() >> c.count % 32, 0);
}

void every_rule_steps_every_kind_of_stream_as_the_host_does(void**) {
  uint64_t seed = 1, number = 0;
  for (const Rule& rule : all_rules()) {
    for (const Kind& kind : all_kinds()) {
      // A direction is fp32, and states are nothing to it.
      if (rule.rule == kCudaApply &&
          (kind.grad != ZERO_DTYPE_FP32 || kind.state != ZERO_DTYPE_FP32)) {
        continue;
      }
      for (const Numbers numbers : {Numbers::kFinite, Numbers::kAwkward}) {
        if (number++ % every(23) != 0) continue;
        const uint64_t count = 96 + seed % 190;
        compare(rule, kind, {count, 96, seed % 4 == 0 ? seed % 5 : 0, numbers, seed % 3 == 0},
                seed);
        seed++;
      }
    }
  }
}

// A block goes round more than once, whole and in part; and fewer elements than a group.
void every_length_of_a_tile_is_stepped_as_the_host_does(void**) {
  const Kind kinds[] = {
      {Master::kPlain, ZERO_DTYPE_FP32, ZERO_DTYPE_FP32, ZERO_DTYPE_FP32, false, ZERO_DTYPE_FP32},
      {Master::kPlain, ZERO_DTYPE_FP32, ZERO_DTYPE_BF16, ZERO_DTYPE_FP32, true, ZERO_DTYPE_BF16},
      {Master::kTies, ZERO_DTYPE_FP32, ZERO_DTYPE_BF16, ZERO_DTYPE_BF16, true, ZERO_DTYPE_BF16}};
  const Rule adamw = all_rules()[0];
  uint64_t seed = 500;
  for (const Kind& kind : kinds) {
    for (const uint64_t count : {1, 7, 8, 9, 31, 33, 64, 2048, 2049, 4096 + 13}) {
      if (kFewCases && count > 64) continue;
      compare(adamw, kind, {count, kCudaTileElements, 0, Numbers::kFinite, false}, seed++);
      compare(adamw, kind, {count, kCudaTileElements, 1, Numbers::kFinite, false}, seed++);
    }
  }
}

// Lion takes the sign of a sum that would cancel to 0 if its product were rounded by itself.
void lion_takes_the_sign_of_an_unrounded_sum(void**) {
  Array master(ZERO_DTYPE_FP32, 64), grad(ZERO_DTYPE_FP32, 64), m(ZERO_DTYPE_FP32, 64);
  Random random(9);
  for (uint64_t i = 0; i < 64; i++) {
    m.set(i, random.finite());
    grad.set(i, -(0.9f * m.at(i)));
    master.set(i, 1);
  }
  std::vector<CudaConstants> constants(1);
  constants[0].active = 1;
  constants[0].lion = {1, 0.9f, 1, 0.5f, 0.5f, 0.25f, 1};
  const DeviceArray device_master(master), device_grad(grad), device_m(m);
  const DeviceValues<CudaTile> tiles(cut(64, 64, 1));
  const DeviceValues<CudaConstants> device_constants(constants);
  CudaUpdate u;
  u.tiles = tiles.data();
  u.tile_count = 1;
  u.rule = kCudaLion;
  u.constants = device_constants.data();
  u.master = device_master.data();
  u.grad = device_grad.data();
  u.state[0] = device_m.data();
  succeeded(table().update(&u, nullptr));
  const Array got = device_master.back();
  uint64_t moved_up = 0, moved_down = 0;
  for (uint64_t i = 0; i < 64; i++) {
    const double rest = static_cast<double>(0.9f) * m.at(i) + static_cast<double>(grad.at(i));
    assert_true(got.at(i) == (rest > 0 ? 0.75f : rest < 0 ? 1.25f : 1.0f));
    moved_up += rest < 0 ? 1 : 0;
    moved_down += rest > 0 ? 1 : 0;
  }
  assert_true(moved_up > 8 && moved_down > 8);
}

void a_skipped_step_changes_nothing(void**) {
  const Kind kind = {Master::kPlain,  ZERO_DTYPE_FP32, ZERO_DTYPE_FP32,
                     ZERO_DTYPE_FP32, false,           ZERO_DTYPE_FP32};
  const Case c = {300, 96, 0, Numbers::kFinite, false};
  for (const Rule& rule : all_rules()) {
    for (const int32_t skip : {0, 1}) {
      Streams streams(kind, c, 3);
      const DeviceArray master(streams.master), grad(streams.grad);
      const DeviceArray first(streams.first), second(streams.second);
      const std::vector<CudaTile> tiles = cut(c.count, c.tile, kParams);
      const DeviceValues<CudaTile> device_tiles(tiles);
      const DeviceValues<CudaConstants> constants(
          std::vector<CudaConstants>(rule.constants, rule.constants + kParams));
      CudaStep record;
      record.skip = skip;
      const DeviceValues<CudaStep> step(record);
      CudaUpdate u;
      u.tiles = device_tiles.data();
      u.tile_count = static_cast<uint32_t>(tiles.size());
      u.rule = rule.rule;
      u.constants = constants.data();
      u.step = step.data();
      u.master = master.data();
      u.grad = grad.data();
      u.state[0] = rule.states > 0 ? first.data() : nullptr;
      u.state[1] = rule.states > 1 ? second.data() : nullptr;
      succeeded(table().update(&u, nullptr));
      if (skip == 0) update_on_host(rule, kind, tiles, &streams);
      master.assert_is("master", streams.master);
      first.assert_is("first state", streams.first);
      second.assert_is("second state", streams.second);
    }
  }
}

} // namespace

int main() {
  if (!belongs_to_the_tier()) return 77;
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_rule_steps_every_kind_of_stream_as_the_host_does),
      cmocka_unit_test(every_length_of_a_tile_is_stepped_as_the_host_does),
      cmocka_unit_test(lion_takes_the_sign_of_an_unrounded_sum),
      cmocka_unit_test(a_skipped_step_changes_nothing),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
