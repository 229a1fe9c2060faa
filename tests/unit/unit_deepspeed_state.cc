// Every checkpoint of the corpus, as DeepSpeed itself read it back: masters, moments, steps,
// groups, buffers, scaler, client state. SPDX-License-Identifier: BSD-3-Clause
#include "base/dtype.h"
#include "checkpoint/element_cast.h"
#include "deepspeed_cases.h"

using namespace deepspeed_cases;
using zero::checkpoint::DeepSpeedParameter;
using zero::checkpoint::DeepSpeedReader;
using zero::checkpoint::DeepSpeedState;

namespace {

std::vector<float> floats(const DeepSpeedReader& reader, int32_t param, zero_part part,
                          int32_t index) {
  const uint64_t elements = reader.state().parameters[static_cast<size_t>(param)].elements;
  std::vector<float> values(elements);
  // In two pieces, so that a range from the middle is read as well.
  const uint64_t cut = elements / 3;
  reader.read(param, part, index, 0, cut, values.data());
  reader.read(param, part, index, cut, elements - cut, values.data() + cut);
  return values;
}

bool same(const std::vector<float>& ours, const Array& theirs) {
  return ours.size() == theirs.values.size() &&
         std::memcmp(ours.data(), theirs.values.data(), ours.size() * sizeof(float)) == 0;
}

// What is written is 16 bits wide, what numpy has is the same number in fp32.
std::vector<float> value_as_floats(const DeepSpeedReader& reader, int32_t param) {
  const DeepSpeedParameter& parameter = reader.state().parameters[static_cast<size_t>(param)];
  std::vector<float> values(parameter.elements);
  if (parameter.dtype == ZERO_DTYPE_FP32) {
    reader.read(param, ZERO_PART_VALUE, 0, 0, parameter.elements, values.data());
    return values;
  }
  assert_int_equal(parameter.dtype, ZERO_DTYPE_BF16);
  std::vector<uint16_t> halves(parameter.elements);
  reader.read(param, ZERO_PART_VALUE, 0, 0, parameter.elements, halves.data());
  for (size_t i = 0; i < halves.size(); ++i) {
    const uint32_t bits = static_cast<uint32_t>(halves[i]) << 16;
    std::memcpy(&values[i], &bits, sizeof(bits));
  }
  return values;
}

int check_parameter(const DeepSpeedReader& reader, int32_t number,
                    const std::map<std::string, Array>& expected) {
  const DeepSpeedParameter& parameter = reader.state().parameters[static_cast<size_t>(number)];
  if (parameter.tied_to >= 0) return 0;
  if (parameter.role != ZERO_PARAM_TRAINED) {
    const Array& value = expected.at(parameter.name + "/value");
    assert_true(parameter.shape == value.shape);
    if (parameter.dtype == ZERO_DTYPE_INT64) {
      int64_t integer = -1;
      reader.read(number, ZERO_PART_VALUE, 0, 0, 1, &integer);
      assert_int_equal(integer, value.integer);
    } else {
      assert_true(same(value_as_floats(reader, number), value));
    }
    return 1;
  }
  assert_true(parameter.shape == expected.at(parameter.name + "/master").shape);
  assert_true(
      same(floats(reader, number, ZERO_PART_MASTER, 0), expected.at(parameter.name + "/master")));
  assert_true(
      same(floats(reader, number, ZERO_PART_STATE, 0), expected.at(parameter.name + "/exp_avg")));
  assert_true(same(floats(reader, number, ZERO_PART_STATE, 1),
                   expected.at(parameter.name + "/exp_avg_sq")));
  assert_int_equal(parameter.step, expected.at("step").integer);
  // The value is the master, rounded: nothing is lost where it is not stored.
  const std::vector<float> master = floats(reader, number, ZERO_PART_MASTER, 0);
  std::vector<char> rounded(master.size() * zero::dtype_bytes(parameter.dtype));
  std::vector<char> value(rounded.size());
  zero::checkpoint::cast_elements(master.data(), ZERO_DTYPE_FP32, rounded.data(), parameter.dtype,
                                  master.size());
  reader.read(number, ZERO_PART_VALUE, 0, 0, parameter.elements, value.data());
  assert_true(rounded == value);
  return 3;
}

void check_state(const DeepSpeedState& state, const std::string& folder) {
  assert_int_equal(state.stage, folder.back() - '0');
  assert_int_equal(state.world_size, 2);
  assert_int_equal(state.compute_dtype,
                   folder.find("bf16") != std::string::npos ? ZERO_DTYPE_BF16 : ZERO_DTYPE_FP32);
  assert_int_equal(state.global_steps, 3);
  assert_int_equal(state.skipped_steps, 0);
  assert_int_equal(state.global_samples, 12);
  assert_int_equal(state.scheduler_iteration, 2);
  assert_string_equal(state.client_state.c_str(), "{\"epoch\":7,\"note\":\"made by DeepSpeed\"}");
  assert_true(state.config.find("\"warmup_num_steps\":2") != std::string::npos);
  assert_true(state.scaler.scale == 1 && !state.scaler.dynamic);
  assert_int_equal(state.state_names.size(), 2);
  assert_int_equal(state.groups.size(), 2);
  assert_true(state.groups[0].weight_decay == 0.1 && state.groups[1].weight_decay == 0);
  for (const auto& group : state.groups) {
    assert_true(group.lr == 1e-2 && group.beta1 == 0.9 && group.beta2 == 0.95);
    assert_true(group.epsilon == 1e-8 && group.has_betas && !group.has_momentum);
  }
}

void each_checkpoint_of_the_corpus_reads_as_deepspeed_reads_it(void**) {
  int checkpoints = 0;
  for (const fs::directory_entry& folder : fs::directory_iterator(corpus())) {
    const std::map<std::string, Array> expected = read_npz(folder.path() / "expected.npz");
    const DeepSpeedReader reader(folder.path().string());
    reader.verify();
    check_state(reader.state(), folder.path().filename().string());
    const auto& parameters = reader.state().parameters;
    size_t compared = 1; // "step"
    for (size_t p = 0; p < parameters.size(); ++p) {
      compared += static_cast<size_t>(check_parameter(reader, static_cast<int32_t>(p), expected));
      const bool matrix = parameters[p].shape.size() > 1;
      if (parameters[p].role == ZERO_PARAM_TRAINED) {
        assert_int_equal(parameters[p].group, matrix ? 0 : 1);
      }
    }
    assert_int_equal(compared, expected.size());
    assert_string_equal(parameters.back().name.c_str(), "head.weight");
    assert_string_equal(parameters[static_cast<size_t>(parameters.back().tied_to)].name.c_str(),
                        "embedding.weight");
    ++checkpoints;
  }
  assert_int_equal(checkpoints, 7);
}

void a_tag_is_found_by_the_pointer_or_given_itself(void**) {
  const fs::path folder = corpus() / "w2-fp32-s2";
  assert_int_equal(DeepSpeedReader((folder / "tag").string()).state().stage, 2);
  assert_int_equal(DeepSpeedReader((folder / "").string()).state().stage, 2);
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(each_checkpoint_of_the_corpus_reads_as_deepspeed_reads_it),
      cmocka_unit_test(a_tag_is_found_by_the_pointer_or_given_itself),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
