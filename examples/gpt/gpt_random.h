// Random numbers that depend on the seed alone: the same on every rank, stage and machine.
// SPDX-License-Identifier: BSD-3-Clause
#ifndef GPT_RANDOM_H
#define GPT_RANDOM_H

#include <math.h>
#include <stdint.h>

typedef struct gpt_random {
  uint64_t state;
} gpt_random;

static inline uint64_t gpt_random_next(gpt_random* random) { // splitmix64
  uint64_t z = random->state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// A stream of its own for each number.
static inline gpt_random gpt_random_from(uint64_t seed, uint64_t number) {
  gpt_random mixed = {seed};
  const uint64_t start = gpt_random_next(&mixed);
  mixed.state = start ^ (number * 0xd1342543de82ef95u);
  gpt_random_next(&mixed);
  return mixed;
}

// In (0, 1).
static inline double gpt_random_uniform(gpt_random* random) {
  return ((double)(gpt_random_next(random) >> 11) + 0.5) / 9007199254740992.0;
}

static inline double gpt_random_normal(gpt_random* random) {
  const double radius = sqrt(-2 * log(gpt_random_uniform(random)));
  return radius * cos(6.283185307179586 * gpt_random_uniform(random));
}

#endif
