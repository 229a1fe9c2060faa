// Every model of the shared corpus, with DeepSpeed's default sizes: read, totalled and planned.
// Skipped where LIBZERO_SHARED has no corpus.
// SPDX-License-Identifier: BSD-3-Clause
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "plan_cases.h"

using namespace plan_cases;

namespace {

// Less than one bucket of the least size (2^18 elements): its gradients are handed out as one
// piece, and that piece plus a shard is more than the whole.
const std::set<std::string> kToys = {"awkward-toy", "flux-lenet5", "flux-mlp-mnist"};

struct CorpusModel {
  uint64_t rows, unique, trained, buffer_elements, alias_elements, largest;
};

// Totals of SUMMARY.tsv, which were checked against what the models' authors publish.
std::map<std::string, CorpusModel> read_summary(const std::string& folder) {
  std::ifstream in(folder + "/SUMMARY.tsv");
  std::string line;
  std::getline(in, line);
  std::map<std::string, CorpusModel> models;
  while (std::getline(in, line)) {
    std::istringstream fields(line);
    std::string name;
    CorpusModel m{};
    fields >> name >> m.rows >> m.unique >> m.trained >> m.buffer_elements >> m.alias_elements >>
        m.largest;
    models[name] = m;
  }
  return models;
}

std::string corpus_or_skip() {
  std::string folder = corpus_models();
  if (folder.empty()) skip();
  return folder;
}

void every_list_has_its_published_totals(void**) {
  const std::string folder = corpus_or_skip();
  const auto summary = read_summary(folder);
  EXPECT(summary.size() >= 25);
  for (const auto& [name, expected] : summary) {
    const ParameterTable model = load_parameter_table(folder + "/" + name + ".tsv");
    CorpusModel m{};
    for (const Parameter& parameter : model.parameters()) {
      ++m.rows;
      if (parameter.role == ZERO_PARAM_BUFFER) {
        m.buffer_elements += parameter.elements;
      } else if (parameter.tied_to >= 0) {
        m.alias_elements += parameter.elements;
      } else {
        m.unique += parameter.elements;
        if (parameter.role == ZERO_PARAM_TRAINED) m.trained += parameter.elements;
        m.largest = std::max(m.largest, parameter.elements);
      }
    }
    EXPECT_EQUAL(m.rows, expected.rows);
    EXPECT_EQUAL(m.unique, expected.unique);
    EXPECT_EQUAL(m.trained, expected.trained);
    EXPECT_EQUAL(m.buffer_elements, expected.buffer_elements);
    EXPECT_EQUAL(m.alias_elements, expected.alias_elements);
    EXPECT_EQUAL(m.largest, expected.largest);
  }
}

uint64_t model_states(const Plan& plan) {
  const uint64_t* bytes = plan.memory.bytes;
  return bytes[ZERO_MEMORY_PARAMS] + bytes[ZERO_MEMORY_GRADS] + bytes[ZERO_MEMORY_MASTER] +
         bytes[ZERO_MEMORY_OPTIMIZER];
}

// Why a toy is excused: one slot of its pool and a shard are not less than the whole.
bool one_slot_and_a_shard_are_the_whole(const Plan& plan) {
  for (size_t c = 0; c < plan.classes.size(); ++c) {
    const ParameterClass& klass = plan.classes[c];
    if (!klass.trained || klass.real_elements >= uint64_t{1} << 18) continue;
    if (plan.pools[c].normal_elements + klass.shard_elements > klass.elements) return true;
  }
  return false;
}

void each_stage_needs_less_for_every_model(void**) {
  const std::string folder = corpus_or_skip();
  for (const auto& [name, totals] : read_summary(folder)) {
    const ParameterTable model = load_parameter_table(folder + "/" + name + ".tsv");
    uint64_t all = UINT64_MAX, states = UINT64_MAX;
    for (const int32_t stage : {0, 1, 2, 3}) {
      const auto plan = Plan::make(settings_of(stage, 4), model);
      const uint64_t total = plan->memory.bytes[ZERO_MEMORY_TOTAL];
      if (model_states(*plan) >= states) {
        SAY_AND_FAIL("%s: model states at stage %d are not below stage %d", name.c_str(), stage,
                     stage - 1);
      }
      if (kToys.count(name) == 1) {
        if (stage == 2) EXPECT(one_slot_and_a_shard_are_the_whole(*plan));
      } else if (total >= all) {
        SAY_AND_FAIL("%s: %llu bytes at stage %d, %llu at stage %d", name.c_str(),
                     static_cast<unsigned long long>(total), stage,
                     static_cast<unsigned long long>(all), stage - 1);
      }
      all = total;
      states = model_states(*plan);
    }
  }
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_list_has_its_published_totals),
      cmocka_unit_test(each_stage_needs_less_for_every_model),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
