// Training goes on from checkpoints that other languages wrote.  Prints, of each, the step and a
// checksum of every part that the runtime then holds, and of the values after one more step; saves
// the last. SPDX-License-Identifier: BSD-3-Clause
//   zero run -n N -- bindings_resume CONFIG OUT CHECKPOINT...
// resume.py, resume.jl and resume.rs are the same program.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zero.h>

enum { PARAMS = 5 };
static const char* const names[PARAMS] = {"embed", "w1", "b1", "w2", "b2"};
static const int64_t shapes[PARAMS][2] = {{128, 16}, {64, 64}, {64, 0}, {64, 128}, {128, 0}};

static void must(zero_status status, const char* doing) {
  if (status == ZERO_OK) return;
  zero_error_info info;
  zero_error_info_init(&info, sizeof info);
  zero_last_error(&info);
  fprintf(stderr, "resume: %s: %s: %s\n", doing, zero_status_name(status), info.message);
  exit(1);
}

static uint64_t elements(int param) {
  return (uint64_t)shapes[param][0] * (shapes[param][1] ? (uint64_t)shapes[param][1] : 1);
}

// Sum of (position from 1) * (bits), modulo 2^64: the same in every language.
static uint64_t checksum(zero_runtime* runtime, int param, zero_part part, int32_t index) {
  const uint64_t count = elements(param);
  uint32_t* const bits = malloc(count * sizeof *bits);
  uint64_t sum = 0;
  if (!bits) exit(1);
  must(zero_param_get(runtime, param, part, index, bits, count * sizeof *bits), names[param]);
  for (uint64_t i = 0; i < count; i++) sum += (i + 1) * bits[i];
  free(bits);
  return sum;
}

static void submit(zero_runtime* runtime, int param) {
  const uint64_t count = elements(param);
  float* const values = malloc(count * sizeof *values);
  if (!values) exit(1);
  for (uint64_t i = 0; i < count; i++) {
    values[i] = (float)((i * 7 + (uint64_t)param * 13) % 17) / 16.0f - 0.5f;
  }
  const zero_buffer gradient = {
      values, count * sizeof *values, count, ZERO_DTYPE_FP32, ZERO_PLACE_HOST, -1, 0};
  must(zero_grad_submit(runtime, param, &gradient, NULL), names[param]);
  free(values);
}

static void resume(const zero_config* config, const char* path, const char* out) {
  zero_model* model = NULL;
  zero_runtime* runtime = NULL;
  zero_checkpoint* checkpoint = NULL;
  must(zero_model_create(&model), "model");
  for (int i = 0; i < PARAMS; i++) {
    zero_param_options options;
    zero_param_options_init(&options, sizeof options);
    options.dtype = ZERO_DTYPE_FP32;
    zero_param_id id = -1;
    must(zero_param_add(model, names[i], shapes[i], shapes[i][1] ? 2 : 1, &options, &id), names[i]);
  }
  must(zero_init(config, NULL, &runtime), "init");
  must(zero_shard_params(runtime, model), "shard");
  must(zero_checkpoint_open(path, &checkpoint), path);
  must(zero_checkpoint_load(runtime, checkpoint, NULL), path);
  if (out) must(zero_checkpoint_save(runtime, out, NULL), out);

  const int speaks = zero_comm_rank(zero_runtime_comm(runtime)) == 0;
  if (speaks) printf("step %lld\n", (long long)zero_step_count(runtime));
  for (int i = 0; i < PARAMS; i++) {
    const uint64_t sums[] = {
        checksum(runtime, i, ZERO_PART_VALUE, 0), checksum(runtime, i, ZERO_PART_MASTER, 0),
        checksum(runtime, i, ZERO_PART_STATE, 0), checksum(runtime, i, ZERO_PART_STATE, 1)};
    if (!speaks) continue;
    printf("%s %llu %llu %llu %llu\n", names[i], (unsigned long long)sums[0],
           (unsigned long long)sums[1], (unsigned long long)sums[2], (unsigned long long)sums[3]);
  }
  for (int i = PARAMS - 1; i >= 0; i--) submit(runtime, i);
  must(zero_step(runtime, NULL, NULL, NULL), "step");
  for (int i = 0; i < PARAMS; i++) {
    const uint64_t sum = checksum(runtime, i, ZERO_PART_VALUE, 0);
    if (speaks) printf("then %s %llu\n", names[i], (unsigned long long)sum);
  }
  must(zero_runtime_close(runtime), "close");
  zero_checkpoint_destroy(checkpoint);
  zero_runtime_destroy(runtime);
  zero_model_destroy(model);
}

int main(int argc, char** argv) {
  zero_config* config = NULL;
  if (argc < 4) return 2;
  must(zero_config_load_file(argv[1], &config), "config");
  for (int i = 3; i < argc; i++) resume(config, argv[i], i == argc - 1 ? argv[2] : NULL);
  zero_config_destroy(config);
  return 0;
}
