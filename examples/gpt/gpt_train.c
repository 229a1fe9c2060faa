// Trains a GPT on text.  One program for every stage and any number of ranks: the configuration
// file says the stage, the environment says the ranks (alone: one).
// SPDX-License-Identifier: BSD-3-Clause
#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zero.h>

#include "gpt_data.h"
#include "gpt_options.h"
#include "gpt_plain.h"
#include "gpt_random.h"
#include "gpt_report.h"
#include "gpt_zero.h"

typedef struct trainer {
  gpt_options options;
  zero_comm* comm;
  zero_runtime* runtime;
  gpt_plain* plain; // NULL: ZeRO
  gpt_model* model;
  gpt_text text;
  int rank, ranks;
  int rows; // sequences of a micro-batch
  int accumulation; // micro-batches of a step
  uint8_t *tokens, *targets;
} trainer;

// ---- configuration ----

static int64_t config_integer(const zero_config* config, const char* key) {
  char text[64];
  uint64_t length = 0;
  gpt_must(zero_config_get(config, key, text, sizeof text, &length), key);
  return (int64_t)strtod(text, NULL);
}

static void print_findings(const zero_config* config, const char* path) {
  zero_diagnostic finding;
  zero_diagnostic_init(&finding, sizeof finding);
  for (int32_t i = 0; i < zero_config_diagnostic_count(config); i++) {
    gpt_must(zero_config_diagnostic_at(config, i, &finding), "finding");
    fprintf(stderr, "%s:%d:%d: %s: %s: %s\n", path, finding.line, finding.column,
            finding.is_error ? "error" : "warning", finding.key, finding.message);
  }
}

// What the trainer puts in the place of each "auto"; a value that the file has stands.
static zero_config_facts facts_for(const zero_config* config, const gpt_options* options) {
  zero_config_facts facts;
  zero_config_facts_init(&facts, sizeof facts);
  facts.learning_rate = 2e-3;
  facts.beta1 = 0.9;
  facts.beta2 = 0.99;
  facts.epsilon = 1e-8;
  facts.weight_decay = 0.01;
  facts.gradient_clipping = 1;
  facts.total_steps = options->steps;
  facts.warmup_steps = options->steps >= 20 ? options->steps / 10 : 1;
  facts.hidden_size = options->shape.width;
  facts.compute_dtype = ZERO_DTYPE_FP32;
  // Of a train batch in the file the library works out the micro-batch.
  if (config_integer(config, "train_batch_size") == 0) facts.micro_batch_size = 8;
  facts.accumulation_steps = 1;
  return facts;
}

// Loads the file, joins the other ranks, fills what the file leaves to the program, and checks.
static zero_config* configure(trainer* t) {
  zero_config* config = NULL;
  gpt_must(zero_config_load_file(t->options.config, &config), t->options.config);
  zero_config_facts facts = facts_for(config, &t->options);
  // The communicator reads the file too, so no hole but the number of ranks may be left by then.
  gpt_must(zero_config_fill_auto(config, &facts), t->options.config);
  gpt_must(zero_comm_create_from_config(config, &t->comm), "communicator");
  t->rank = zero_comm_rank(t->comm);
  t->ranks = zero_comm_size(t->comm);
  facts.world_size = t->ranks; // batch sizes follow from it
  const int64_t train_rows = config_integer(config, "train_batch_size");
  const int64_t rows = config_integer(config, "train_micro_batch_size_per_gpu");
  // Both in the file: how often then follows too.  What does not divide, the check refuses.
  if (train_rows > rows * t->ranks && rows > 0)
    facts.accumulation_steps = train_rows / rows / t->ranks;
  gpt_must(zero_config_fill_auto(config, &facts), t->options.config);
  const zero_status status = zero_config_check(config);
  if (t->rank == 0) print_findings(config, t->options.config);
  gpt_must(status, t->options.config);
  t->rows = (int)config_integer(config, "train_micro_batch_size_per_gpu");
  t->accumulation = (int)config_integer(config, "gradient_accumulation_steps");
  if (t->rows < 1 || t->accumulation < 1) {
    fprintf(stderr, "gpt: %s: train_micro_batch_size_per_gpu is needed\n", t->options.config);
    exit(1);
  }
  return config;
}

// ---- the passes ----

static double validate(trainer* t) {
  const int window = t->options.window;
  // Of each rank: all ranks make the same number of loans.  Asked for a number of sequences, one at
  // a time, so that it is the same sequences whatever the batch.
  const int rows = t->options.validation > 0 ? 1 : t->rows;
  const int batches = t->options.validation > 0 ? t->options.validation : 4;
  double sum[2] = {0, batches};
  for (int i = 0; i < batches; i++) {
    gpt_validation_batch(&t->text, (uint64_t)(i * t->ranks + t->rank),
                         (uint64_t)(batches * t->ranks), rows, window, t->tokens, t->targets);
    sum[0] += gpt_loss(t->model, t->tokens, t->targets, rows, window);
  }
  gpt_must(zero_comm_all_reduce(t->comm, sum, 2, ZERO_REDUCE_SUM), "mean validation loss");
  return sum[0] / sum[1];
}

// One update; returns this rank's mean loss, which is never scaled: the scale is on the gradients
// alone.
static double train_step(trainer* t, int64_t step, zero_step_info* info) {
  const int is_plain = t->plain != NULL;
  const int window = t->options.window;
  double loss = 0;
  for (int micro = 0; micro < t->accumulation; micro++) {
    const int64_t number = (step * t->accumulation + micro) * t->ranks + t->rank;
    gpt_training_batch(&t->text, t->options.seed, (uint64_t)number, t->rows, window, t->tokens,
                       t->targets);
    if (is_plain) { // its gradients are divided here, as a loss is in a loop of PyTorch
      const double share = 1.0 / t->accumulation;
      loss += gpt_loss_and_gradients(t->model, t->tokens, t->targets, t->rows, window, share);
      continue;
    }
    gpt_must(zero_micro_begin(t->runtime, micro + 1 == t->accumulation), "micro-batch");
    loss += gpt_loss_and_gradients(t->model, t->tokens, t->targets, t->rows, window,
                                   zero_loss_scale(t->runtime));
    gpt_must(zero_micro_end(t->runtime, NULL), "micro-batch");
  }
  if (is_plain) {
    gpt_plain_step(t->plain, info);
    return loss / t->accumulation;
  }
  const double scale = zero_loss_scale(t->runtime);
  gpt_must(zero_step(t->runtime, NULL, NULL, info), "step");
  // No failure: the next one has a smaller scale.  At the smallest, zero_step itself fails.
  if (info->skipped && t->rank == 0) gpt_report_skipped(step + 1, scale, info);
  return loss / t->accumulation;
}

static void train(trainer* t, gpt_result* result) {
  const int64_t steps = t->options.steps;
  const int64_t each = steps > 20 ? steps / 20 : 1; // a line of progress
  const double tokens =
      (double)t->ranks * (double)t->accumulation * (double)t->rows * (double)t->options.window;
  double* times = gpt_allocate((uint64_t)steps * sizeof *times, "times of the steps");
  zero_step_info info;
  zero_step_info_init(&info, sizeof info);
  double losses[2] = {0, 0}; // sum and count since the last line
  double spent = 0, process = 0;
  for (int64_t step = 0; step < steps; step++) {
    const double start = gpt_seconds();
    losses[0] += train_step(t, step, &info);
    losses[1] += 1;
    spent += times[step] = gpt_seconds() - start;
    if ((step + 1) % each != 0 && step + 1 != steps) continue;

    process = fmax(process, gpt_process_bytes());
    gpt_must(zero_comm_all_reduce(t->comm, losses, 2, ZERO_REDUCE_SUM), "mean loss");
    result->loss = losses[0] / losses[1];
    losses[0] = losses[1] = 0;
    const double step_mean = spent / (double)(step + 1);
    if (t->rank == 0)
      gpt_report_progress(step + 1, steps, result->loss, &info, tokens / step_mean,
                          step_mean * (double)(steps - step - 1));
    if ((step + 1) % (5 * each) != 0 && step + 1 != steps) continue;
    result->validation_loss = validate(t);
    if (t->rank == 0) printf("validation loss %.4f\n", result->validation_loss);
  }
  result->step_seconds = gpt_median(times, steps);
  result->tokens_per_second = tokens / result->step_seconds;
  gpt_report_memory(t->runtime, process, result);
  free(times);
}

// ---- what it has learnt ----

// Draws from softmax(scores / 0.8): bold enough to be read, timid enough to be spelt.
static uint8_t draw(const gpt_real* scores, gpt_random* random) {
  double weights[256], sum = 0, largest = scores[0];
  for (int i = 1; i < 256; i++) largest = fmax(largest, scores[i]);
  for (int i = 0; i < 256; i++) sum += weights[i] = exp((scores[i] - largest) / 0.8);
  double left = sum * gpt_random_uniform(random);
  int drawn = 0;
  while (drawn < 255 && (left -= weights[drawn]) > 0) drawn++;
  return (uint8_t)drawn;
}

// All ranks write the same text, since a loan is taken by all of them; rank 0 shows it.
static void write_sample(trainer* t) {
  const int window = t->options.window;
  gpt_random random = gpt_random_from(t->options.seed, UINT64_MAX);
  uint8_t* text = t->tokens; // the last window bytes
  int count = window < 16 ? window : 16;
  memcpy(text, t->text.bytes + t->text.training, (size_t)count);
  if (t->rank == 0) printf("\nsample:\n%.*s|", count, (const char*)text);
  for (int i = 0; i < t->options.sample; i++) {
    const uint8_t next = draw(gpt_next_scores(t->model, text, count), &random);
    if (count == window) memmove(text, text + 1, (size_t)--count);
    text[count++] = next;
    if (t->rank == 0) putchar(next == '\n' || (next >= 32 && next < 127) ? next : '?');
  }
  if (t->rank == 0) printf("\n");
}

// Brings the parameters to where they live: libzero's shards, or a replica.
static gpt_store place_parameters(trainer* t, const zero_config* config) {
  const gpt_options* options = &t->options;
  if (options->is_plain) {
    t->plain = gpt_plain_create(t->runtime, config, &options->shape, options->seed);
    return gpt_plain_store(t->plain);
  }
  gpt_real* values = NULL;
  zero_model* parameters = gpt_zero_model(&options->shape, options->seed, &values);
  gpt_must(zero_shard_params(t->runtime, parameters), "shard");
  zero_model_destroy(parameters);
  free(values);
  return gpt_zero_store(t->runtime);
}

int main(int argc, char** argv) {
  trainer t = {0};
  gpt_options_read(argc, argv, &t.options);
  if (t.options.list) return gpt_report_list(&t.options);
  const char* why = gpt_text_load(t.options.data, t.options.window, &t.text);
  if (why) {
    fprintf(stderr, "gpt: %s: %s\n", t.options.data ? t.options.data : "the default text", why);
    return 1;
  }
  zero_config* config = configure(&t);
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  openblas_set_num_threads(cores > t.ranks ? (int)(cores / t.ranks) : 1);

  zero_init_options init;
  zero_init_options_init(&init, sizeof init);
  init.comm = t.comm;
  gpt_must(zero_init(config, &init, &t.runtime), "init");
  const gpt_store store = place_parameters(&t, config);
  t.model = gpt_model_create(&t.options.shape, t.rows, t.options.window, store);
  if (!t.model) {
    fprintf(stderr, "gpt: no memory for the activations of %d x %d tokens\n", t.rows,
            t.options.window);
    return 1;
  }
  t.tokens = gpt_allocate((uint64_t)t.rows * (uint64_t)t.options.window, "tokens");
  t.targets = gpt_allocate((uint64_t)t.rows * (uint64_t)t.options.window, "targets");

  gpt_result result = {0};
  result.stage = (int)config_integer(config, "zero_optimization.stage");
  result.ranks = t.ranks;
  for (int i = 0; i < gpt_parameter_count(&t.options.shape); i++) {
    gpt_parameter parameter;
    gpt_parameter_describe(&t.options.shape, i, &parameter);
    result.parameters += parameter.elements;
  }
  if (t.rank == 0)
    printf(
        "stage %d, %d ranks, %llu parameters, %d x %d x %d tokens a rank and step, %.1f MB text\n",
        result.stage, t.ranks, (unsigned long long)result.parameters, t.accumulation, t.rows,
        t.options.window, (double)t.text.count / 1e6);

  train(&t, &result);
  write_sample(&t);
  result.weights = t.plain ? gpt_plain_weights_hash(t.plain) : gpt_zero_weights_hash(t.runtime);
  if (t.rank == 0) {
    gpt_report_table(&result);
    if (t.options.json && !gpt_report_json(t.options.json, &t.options, &result)) {
      fprintf(stderr, "gpt: --json: \"%s\" cannot be written\n", t.options.json);
      return 1;
    }
    printf("weights %016llx\n", (unsigned long long)result.weights);
    fflush(stdout);
  }
  gpt_model_destroy(t.model); // its activations are the runtime's to count
  gpt_plain_destroy(t.plain);
  gpt_must(zero_runtime_close(t.runtime), "close");
  zero_runtime_destroy(t.runtime);
  zero_comm_destroy(t.comm);
  zero_config_destroy(config);
  gpt_text_free(&t.text);
  free(t.tokens);
  free(t.targets);
  return 0;
}
