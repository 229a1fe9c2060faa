// 01  The smallest run: one rank, one parameter, plain SGD.  The loss is |w - target|^2 / 2, so
// its gradient is w - target, and with rate 1/2 every step halves the distance.
// SPDX-License-Identifier: BSD-3-Clause
#include <stdio.h>
#include <zero.h>

#include "must.h"

int main(void) {
  // A DeepSpeed configuration; most programs load it with zero_config_load_file.
  static const char text[] =
      "{\"train_micro_batch_size_per_gpu\": 1, \"gradient_clipping\": 0,"
      " \"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 0.5}}}";
  zero_config* config = NULL;
  must(zero_config_load_text(text, sizeof text - 1, &config));
  must(zero_config_check(config));

  // The model: names and shapes, and where the first values are.
  zero_model* model = NULL;
  must(zero_model_create(&model));
  const float first[4] = {0, 0, 0, 0};
  const int64_t shape[1] = {4};
  zero_param_options options;
  zero_param_options_init(&options, sizeof options);
  options.dtype = ZERO_DTYPE_FP32;
  options.data = (void*)first;
  zero_param_id w = -1;
  must(zero_param_add(model, "w", shape, 1, &options, &w));

  // The runtime takes the values over; zero_param_buffer says where they live from now on.
  zero_runtime* runtime = NULL;
  must(zero_init(config, NULL, &runtime));
  must(zero_shard_params(runtime, model));
  zero_model_destroy(model);
  zero_config_destroy(config);
  zero_buffer value;
  must(zero_param_buffer(runtime, w, &value));
  const float* now = value.data;

  const float target[4] = {1, 2, -4, 8};
  for (int step = 0; step < 10; step++) {
    zero_buffer gradient;
    int32_t add = 0; // with one micro-batch a step there is nothing to add to
    must(zero_grad_buffer(runtime, w, NULL, &gradient, &add));
    for (int i = 0; i < 4; i++) ((float*)gradient.data)[i] = now[i] - target[i];
    must(zero_grad_ready(runtime, &w, 1, NULL));
    must(zero_step(runtime, NULL, NULL, NULL));
  }

  int wrong = 0;
  for (int i = 0; i < 4; i++) {
    printf("w[%d] = %g\n", i, (double)now[i]);
    wrong |= now[i] != target[i] * (1 - 1.0f / 1024); // powers of two: exact
  }
  must(zero_runtime_close(runtime));
  zero_runtime_destroy(runtime);
  return wrong;
}
