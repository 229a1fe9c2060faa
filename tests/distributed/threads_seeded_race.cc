// A program that does not wait where zero.h says it must.  ThreadSanitizer has to report it, else a
// clean report of the other programs means nothing; distributed_threads_seeded.py looks.
// SPDX-License-Identifier: BSD-3-Clause
//   threads_seeded_race none|gradient|loan
#include <chrono>
#include <thread>

#include "model_values.h"
#include "training.h"

namespace {

training::RunSpec spec_of(const std::string& seed) {
  training::RunSpec spec;
  spec.ranks = 2;
  spec.stage = seed == "loan" ? 3 : 2;
  spec.overlap = 1;
  spec.bucket = 3000;
  return spec;
}

struct Unit {
  std::vector<int32_t> params;
  std::vector<zero_buffer> buffers;
};

// A sleep orders nothing, and so hides nothing; what is seen late is seen more surely.
void let_others_come_first() {
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

void hand_over(zero_runtime* runtime, int32_t param, bool write_late) {
  zero_buffer buffer;
  int32_t add = 0;
  OK(zero_grad_buffer(runtime, param, nullptr, &buffer, &add));
  auto* values = static_cast<float*>(buffer.data);
  for (uint64_t i = 0; i < buffer.count; ++i) values[i] = 0.5f;
  OK(zero_grad_ready(runtime, &param, 1, nullptr));
  // The peer reads it from now on.
  if (write_late) let_others_come_first();
  for (uint64_t i = 0; write_late && i < buffer.count; ++i) values[i] = 0.25f;
}

// Reads the first loan after its release, while its place is used for others.
double read_late(zero_runtime* runtime, std::vector<Unit>& units) {
  double sum = 0;
  Unit& lent = units[1]; // a block
  OK(zero_params_acquire(runtime, lent.params.data(), lent.params.size(), nullptr,
                         lent.buffers.data()));
  OK(zero_params_release(runtime, lent.params.data(), lent.params.size(), 0, nullptr));
  for (size_t u = 2; u < units.size(); ++u) {
    Unit& other = units[u];
    OK(zero_params_acquire(runtime, other.params.data(), other.params.size(), nullptr,
                           other.buffers.data()));
    if (u + 1 < units.size()) {
      const Unit& next = units[u + 1];
      OK(zero_params_prefetch(runtime, next.params.data(), next.params.size()));
    }
    let_others_come_first();
    for (const zero_buffer& buffer : lent.buffers) {
      const auto* values = static_cast<const float*>(buffer.data);
      for (uint64_t i = 0; i < buffer.count; ++i) sum += static_cast<double>(values[i]);
    }
    OK(zero_params_release(runtime, other.params.data(), other.params.size(), 0, nullptr));
  }
  return sum;
}

void run(const std::string& seed, int32_t rank, const std::string& group) {
  const training::ModelSpec model = training::gpt_model();
  const training::RunSpec spec = spec_of(seed);
  const std::string text = training::config_text(spec);
  zero_config* config = nullptr;
  OK(zero_config_load_text(text.data(), text.size(), &config));
  zero_comm* comm = nullptr;
  OK(zero_comm_create_local(group.c_str(), rank, spec.ranks, 60 * ranks::kSecond, &comm));
  zero_init_options init;
  zero_init_options_init(&init, sizeof(init));
  init.comm = comm;
  zero_runtime* runtime = nullptr;
  OK(zero_init(config, &init, &runtime));
  training::Values values;
  zero_model* made = training::make_model(model, spec, &values);
  OK(zero_shard_params(runtime, made));
  zero_model_destroy(made);
  std::vector<Unit> units(5);
  for (size_t p = model.size(); p-- > 0;) {
    Unit& unit = units[static_cast<size_t>(4 - model[p].unit)];
    unit.params.push_back(static_cast<int32_t>(p));
    unit.buffers.emplace_back();
  }
  if (seed == "loan") {
    const double sum = read_late(runtime, units);
    EXPECT(sum < 1e9);
  }
  for (const Unit& unit : units) {
    for (const int32_t param : unit.params) {
      hand_over(runtime, param, seed == "gradient" && rank == 0);
    }
  }
  OK(zero_step(runtime, nullptr, nullptr, nullptr));
  OK(zero_runtime_close(runtime));
  zero_runtime_destroy(runtime);
  zero_comm_destroy(comm);
  zero_config_destroy(config);
}

} // namespace

int main(int count, char** arguments) {
  const std::string seed = count > 1 ? arguments[1] : "none";
  ranks::run_threads(2, [&](int32_t rank, const std::string& group) { run(seed, rank, group); });
  return 0;
}
