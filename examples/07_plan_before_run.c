// 07  The plan before the run: how many bytes will a rank hold?  From a list of parameters and a
// configuration alone - no data, no other rank, no device - for any number of ranks.
//   07_plan_before_run [MODEL.tsv or .safetensors]
// SPDX-License-Identifier: BSD-3-Clause
#include <zero.h>

#include "must.h"

// The rank that holds most; ranks differ by padding alone.
static uint64_t bytes_of_a_rank(const zero_config* config, const zero_model* model, int ranks,
                                zero_memory_use use) {
  zero_plan_options options;
  zero_plan_options_init(&options, sizeof options);
  options.world_size = ranks;
  options.place = ZERO_PLACE_HOST;
  options.comm = ranks == 1 ? ZERO_COMM_SELF : ZERO_COMM_LOCAL;
  zero_plan* plan = NULL;
  must(zero_plan_create(config, model, &options, &plan));
  uint64_t most = 0;
  for (int rank = 0; rank < ranks; rank++) {
    uint64_t bytes = 0;
    must(zero_plan_memory(plan, rank, ZERO_PLACE_HOST, use, &bytes));
    if (bytes > most) most = bytes;
  }
  zero_plan_destroy(plan);
  return most;
}

int main(int argc, char** argv) {
  static const int ranks[] = {1, 2, 8, 64};
  zero_model* model = NULL;
  must(zero_model_load(argc > 1 ? argv[1] : "examples/models/gpt2-124m.tsv", &model));
  int wrong = 0;
  printf("MB a rank     1 rank    2 ranks    8 ranks   64 ranks\n");
  uint64_t stage_above[4] = {0};
  for (int stage = 0; stage < 4; stage++) {
    zero_config* config = must_configure("{\"optimizer\": {\"type\": \"AdamW\"}}");
    const char number[2] = {(char)('0' + stage), 0};
    must(zero_config_set(config, "zero_optimization.stage", number));
    must(zero_config_check(config));
    printf("stage %d ", stage);
    for (int i = 0; i < 4; i++) {
      const uint64_t bytes = bytes_of_a_rank(config, model, ranks[i], ZERO_MEMORY_TOTAL);
      printf(" %10.1f", (double)bytes / 1e6);
      if (stage > 0 && ranks[i] >= 8) wrong |= bytes >= stage_above[i]; // that is what ZeRO is for
      stage_above[i] = bytes;
    }
    // One over the ranks of 8 bytes a parameter, whatever else is needed.
    const uint64_t states = bytes_of_a_rank(config, model, 2, ZERO_MEMORY_OPTIMIZER);
    const uint64_t whole = bytes_of_a_rank(config, model, 1, ZERO_MEMORY_OPTIMIZER);
    wrong |= stage > 0 && (states < whole / 2 || states > whole / 2 + whole / 100);
    printf("\n");
    zero_config_destroy(config);
  }
  zero_model_destroy(model);
  return wrong;
}
