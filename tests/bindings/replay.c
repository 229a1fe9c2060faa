// The C program that the trainers of the other languages are compared with: takes the initial
// weights and the gradients that one of them recorded, runs the same steps, and compares every bit.
// SPDX-License-Identifier: BSD-3-Clause
//   zero run -n 2 -- bindings_replay CONFIG FOLDER [CHECKPOINT]
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zero.h>

enum { PARAMS = 5 };
static const char* const names[PARAMS] = {"embed", "w1", "b1", "w2", "b2"};
static const int64_t shapes[PARAMS][2] = {{128, 16}, {64, 64}, {64, 0}, {64, 128}, {128, 0}};

static const int32_t units[PARAMS] = {0, 1, 1, 2, 2};

static void must(zero_status status, const char* doing) {
  if (status == ZERO_OK) return;
  zero_error_info info;
  zero_error_info_init(&info, sizeof info);
  zero_last_error(&info);
  fprintf(stderr, "replay: %s: %s: %s\n", doing, zero_status_name(status), info.message);
  exit(1);
}

static uint64_t elements(int param) {
  return (uint64_t)shapes[param][0] * (shapes[param][1] ? (uint64_t)shapes[param][1] : 1);
}

// A whole file of floats; *count is their number.
static float* load(const char* folder, const char* name, uint64_t* count) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE* file = fopen(path, "rb");
  if (!file || fseek(file, 0, SEEK_END) != 0) {
    fprintf(stderr, "replay: no %s\n", path);
    exit(1);
  }
  const long size = ftell(file);
  rewind(file);
  float* values = malloc((size_t)size + 1);
  if (!values || fread(values, 1, (size_t)size, file) != (size_t)size) exit(1);
  fclose(file);
  *count = (uint64_t)size / sizeof(float);
  return values;
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  zero_config* config = NULL;
  zero_model* model = NULL;
  zero_runtime* runtime = NULL;
  must(zero_config_load_file(argv[1], &config), "config");
  must(zero_model_create(&model), "model");
  uint64_t count = 0, total = 0;
  float* const initial = load(argv[2], "initial.bin", &count);
  for (int i = 0; i < PARAMS; i++) {
    zero_param_options options;
    zero_param_options_init(&options, sizeof options);
    options.dtype = ZERO_DTYPE_FP32;
    options.data = initial + total;
    options.unit = units[i];
    zero_param_id id = -1;
    must(zero_param_add(model, names[i], shapes[i], shapes[i][1] ? 2 : 1, &options, &id), names[i]);
    total += elements(i);
  }
  if (count != total) {
    fprintf(stderr, "replay: %llu initial values\n", (unsigned long long)count);
    return 1;
  }
  must(zero_init(config, NULL, &runtime), "init");
  must(zero_shard_params(runtime, model), "shard");

  const int32_t rank = zero_comm_rank(zero_runtime_comm(runtime));
  char name[64];
  snprintf(name, sizeof name, "gradients-%d.bin", (int)rank);
  float* const gradients = load(argv[2], name, &count);
  uint64_t steps = 0;
  for (; (steps + 1) * total <= count; steps++) {
    const float* at = gradients + (steps + 1) * total;
    for (int i = PARAMS - 1; i >= 0; i--) {
      at -= elements(i);
      const zero_buffer gradient = {(void*)(uintptr_t)at,
                                    elements(i) * sizeof(float),
                                    elements(i),
                                    ZERO_DTYPE_FP32,
                                    ZERO_PLACE_HOST,
                                    -1,
                                    0};
      must(zero_grad_submit(runtime, i, &gradient, NULL), names[i]);
    }
    must(zero_step(runtime, NULL, NULL, NULL), "step");
  }
  if (argc > 3) must(zero_checkpoint_save(runtime, argv[3], NULL), "save");

  float* const final = load(argv[2], "final.bin", &count);
  int different = count != total || steps == 0;
  for (uint64_t i = 0, from = 0; i < PARAMS && !different; from += elements((int)i), i++) {
    const uint64_t bytes = elements((int)i) * sizeof(float);
    float* const values = malloc(bytes);
    if (!values) return 1;
    must(zero_param_get(runtime, (zero_param_id)i, ZERO_PART_VALUE, 0, values, bytes), names[i]);
    if (memcmp(values, final + from, bytes) != 0) {
      fprintf(stderr, "replay: %s differs\n", names[i]);
      different = 1;
    }
    free(values);
  }
  must(zero_runtime_close(runtime), "close");
  zero_runtime_destroy(runtime);
  zero_model_destroy(model);
  zero_config_destroy(config);
  free(initial);
  free(gradients);
  free(final);
  if (rank == 0 && !different) printf("%llu steps, the same bits\n", (unsigned long long)steps);
  return different;
}
