// Reads the whole text once and copies windows out of it.
// SPDX-License-Identifier: BSD-3-Clause
#include "gpt_data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpt_random.h"

static const char* read_all(FILE* file, gpt_text* text) {
  uint64_t room = 1 << 20;
  text->bytes = malloc(room);
  while (text->bytes) {
    const size_t got = fread(text->bytes + text->count, 1, room - text->count, file);
    text->count += got;
    if (got == 0) return ferror(file) ? "cannot be read to its end" : NULL;
    if (text->count < room) continue;
    uint8_t* larger = realloc(text->bytes, room *= 2);
    if (!larger) break;
    text->bytes = larger;
  }
  return "does not fit into memory";
}

const char* gpt_text_load(const char* path, int window, gpt_text* text) {
  memset(text, 0, sizeof *text);
  FILE* file = path ? fopen(path, "rb") : popen("bible gen1:1-rev22:21 </dev/null 2>&1", "r");
  if (!file) return "cannot be opened";
  const char* why = read_all(file, text);
  const int status = path ? fclose(file) : pclose(file);
  if (!path && status != 0)
    return "needs the program bible: install bible-kjv, or give --data FILE";
  text->training = text->count / 10 * 9;
  if (!why && text->count - text->training < 2 * (uint64_t)window + 2)
    why = "is too short: a tenth of it must hold two windows";
  return why;
}

void gpt_text_free(gpt_text* text) {
  free(text->bytes);
}

static void copy_window(const uint8_t* from, int row, int window, uint8_t* tokens,
                        uint8_t* targets) {
  memcpy(tokens + (size_t)row * window, from, (size_t)window);
  memcpy(targets + (size_t)row * window, from + 1, (size_t)window);
}

void gpt_training_batch(const gpt_text* text, uint64_t seed, uint64_t number, int rows, int window,
                        uint8_t* tokens, uint8_t* targets) {
  for (int row = 0; row < rows; row++) {
    gpt_random random = gpt_random_from(seed, number * (uint64_t)rows + (uint64_t)row);
    const uint64_t start = gpt_random_next(&random) % (text->training - (uint64_t)window);
    copy_window(text->bytes + start, row, window, tokens, targets);
  }
}

void gpt_validation_batch(const gpt_text* text, uint64_t number, uint64_t total, int rows,
                          int window, uint8_t* tokens, uint8_t* targets) {
  const uint64_t room = text->count - text->training - (uint64_t)window - 1;
  for (int row = 0; row < rows; row++) {
    const uint64_t place = number * (uint64_t)rows + (uint64_t)row;
    const uint64_t start = text->training + room * place / (total * (uint64_t)rows);
    copy_window(text->bytes + start, row, window, tokens, targets);
  }
}
