// A run that is saved, ended and gone on with from its checkpoint is the run that was never ended:
// the same bits at the same number of ranks; the same state at any other number and stage.
// SPDX-License-Identifier: BSD-3-Clause
#include "scratch_folder.h"
#include "training.h"

using namespace training;

namespace {

ScratchFolder& scratch() {
  static ScratchFolder folder;
  return folder;
}

void check_equal(const Result& a, const Result& b) {
  assert_int_equal(a.params.size(), b.params.size());
  assert_int_equal(a.state.size(), b.state.size());
  assert_memory_equal(a.params.data(), b.params.data(), a.params.size() * 4);
  if (!a.state.empty()) assert_memory_equal(a.state.data(), b.state.data(), a.state.size() * 4);
}

// Steps 4 to 7 of a run in one piece and of one that begins with a checkpoint of step 3.
void check_resume(const ModelSpec& model, RunSpec spec) {
  spec.steps = 7;
  spec.save = scratch().fresh();
  spec.save_after = 3;
  spec.with_state = true;
  const Result whole = run_with_threads(model, spec);
  RunSpec resumed = spec;
  resumed.load = spec.save;
  resumed.save.clear();
  const Result rest = run_with_threads(model, resumed);
  check_equal(whole, rest);
  assert_int_equal(rest.norms.size(), 4);
  for (size_t i = 0; i < 4; ++i) {
    assert_true(rest.norms[i] == whole.norms[3 + i]);
    assert_true(rest.scales[i] == whole.scales[3 + i]);
  }
}

RunSpec spec_of(int32_t stage, int32_t ranks) {
  RunSpec spec;
  spec.stage = stage;
  spec.ranks = ranks;
  spec.bucket = 100;
  return spec;
}

// The state right after a load, without a step.
Result state_of(const ModelSpec& model, RunSpec spec, const std::string& path, int32_t steps) {
  spec.load = path;
  spec.steps = steps;
  spec.with_state = true;
  return run_with_threads(model, spec);
}

} // namespace

static void a_resumed_run_is_the_same_run_bit_for_bit_at_every_stage(void**) {
  for (int32_t stage = 0; stage <= 3; ++stage) {
    for (const int32_t ranks : {1, 3}) check_resume(awkward_model(), spec_of(stage, ranks));
  }
}

static void a_resumed_run_in_16_bits_is_the_same_run(void**) {
  const char* masters[] = {"", ", \"master_weights\": \"remainder\""};
  for (int32_t stage = 0; stage <= 3; ++stage) {
    RunSpec spec = spec_of(stage, 2);
    spec.dtype = stage % 2 == 0 ? ZERO_DTYPE_BF16 : ZERO_DTYPE_FP16;
    if (spec.dtype == ZERO_DTYPE_FP16) {
      spec.precision = ", \"initial_scale_power\": 8, \"loss_scale_window\": 2";
    } else {
      spec.libzero = masters[stage / 2];
    }
    check_resume(awkward_model(), spec);
    spec.dtype = ZERO_DTYPE_BF16;
    spec.libzero = "";
    spec.precision = ", \"bf16_optimizer_states\": true, \"bf16_master_weights_and_grads\": true";
    check_resume(awkward_model(), spec);
  }
}

// The copy is of the step it was taken at, though training goes on at once.
static void a_save_in_the_background_is_of_the_step_it_was_asked_at(void**) {
  for (int32_t stage = 0; stage <= 3; ++stage) {
    RunSpec spec = spec_of(stage, stage == 0 ? 1 : 3);
    spec.save_in_background = true;
    spec.libzero = ", \"checkpoint_background\": true";
    spec.dtype = stage % 2 == 0 ? ZERO_DTYPE_FP32 : ZERO_DTYPE_BF16;
    check_resume(awkward_model(), spec);
  }
}

// A rank's threads share the ranges that they note and write, and the words that hold the ties of
// 32 elements: a transfer of a piece ends in the middle of one, and so do its parts.
static void ranges_that_threads_share_are_put_in_their_place(void**) {
  ModelSpec model(2);
  model[0].name = "first";
  model[0].shape = {16};
  model[1].name = "many";
  model[1].shape = {1300003};
  for (const char* masters : {"", ", \"master_weights\": \"remainder\""}) {
    RunSpec spec = spec_of(1, 1);
    spec.bucket = 10000000;
    spec.dtype = ZERO_DTYPE_BF16;
    spec.libzero = std::string(", \"threads\": 3") + masters;
    spec.steps = 1;
    spec.with_state = true;
    RunSpec saving = spec;
    saving.save = scratch().fresh();
    saving.save_after = 1;
    const Result whole = run_with_threads(model, saving);
    check_equal(whole, state_of(model, spec, saving.save, 1));
  }
}

static void micro_batches_accumulated_between_saves_change_nothing(void**) {
  RunSpec spec = spec_of(2, 2);
  spec.accumulation = 3;
  check_resume(gpt_model(), spec);
}

static void a_caller_s_own_memory_is_loaded_in_place(void**) {
  RunSpec spec = spec_of(1, 2);
  spec.storage = ZERO_STORAGE_CALLER;
  check_resume(awkward_model(), spec);
}

// Saved at one stage and number of ranks, loaded at others: master and moments are the same bits.
static void any_stage_and_number_of_ranks_loads_any_other(void**) {
  const ModelSpec model = awkward_model();
  struct Case {
    int32_t stage, ranks;
  };
  const Case saved[] = {{0, 1}, {1, 3}, {2, 4}, {3, 2}, {3, 6}};
  const Case loaded[] = {{0, 2}, {1, 1}, {2, 3}, {3, 4}};
  for (const Case& from : saved) {
    RunSpec spec = spec_of(from.stage, from.ranks);
    spec.steps = 3;
    spec.save = scratch().fresh();
    spec.save_after = 3;
    spec.with_state = true;
    const Result whole = run_with_threads(model, spec);
    for (const Case& to : loaded) {
      RunSpec other = spec_of(to.stage, to.ranks);
      other.bucket = 1000000; // R099
      check_equal(whole, state_of(model, other, spec.save, 3));
    }
  }
}

// The master of a 16-bit model is what an fp32 model gets, and back.
static void dtypes_change_and_the_master_stays(void**) {
  const ModelSpec model = awkward_model();
  const zero_dtype dtypes[] = {ZERO_DTYPE_FP32, ZERO_DTYPE_BF16, ZERO_DTYPE_FP16};
  for (const zero_dtype from : dtypes) {
    RunSpec spec = spec_of(2, 2);
    spec.dtype = from;
    spec.steps = 3;
    spec.save = scratch().fresh();
    spec.save_after = 3;
    spec.with_state = true;
    const Result whole = run_with_threads(model, spec);
    for (const zero_dtype to : dtypes) {
      for (const bool remainder : {false, true}) {
        if (remainder && to != ZERO_DTYPE_BF16) continue;
        RunSpec other = spec_of(3, 3);
        other.dtype = to;
        if (remainder) other.libzero = ", \"master_weights\": \"remainder\"";
        const Result loaded = state_of(model, other, spec.save, 3);
        assert_int_equal(loaded.state.size(), whole.state.size());
        assert_memory_equal(loaded.state.data(), whole.state.data(), whole.state.size() * 4);
      }
    }
  }
}

int main() {
  scratch();
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_resumed_run_is_the_same_run_bit_for_bit_at_every_stage),
      cmocka_unit_test(a_resumed_run_in_16_bits_is_the_same_run),
      cmocka_unit_test(a_save_in_the_background_is_of_the_step_it_was_asked_at),
      cmocka_unit_test(ranges_that_threads_share_are_put_in_their_place),
      cmocka_unit_test(micro_batches_accumulated_between_saves_change_nothing),
      cmocka_unit_test(a_caller_s_own_memory_is_loaded_in_place),
      cmocka_unit_test(any_stage_and_number_of_ranks_loads_any_other),
      cmocka_unit_test(dtypes_change_and_the_master_stays),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
