// The backward pass against finite differences.  In double every single element is compared; the
// float build, which is the trainer's own, is compared along the gradient of each parameter.
// SPDX-License-Identifier: BSD-3-Clause
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "gpt_model.h"
#include "gpt_random.h"

enum { ROWS = 2, WINDOW = 7, PARAMETERS = GPT_FIRST_BLOCK + 2 * GPT_BLOCK_PARAMETERS + 2 };

static const gpt_shape shape = {2, 2, 8, 9, 256};

typedef struct arrays {
  gpt_real* values[PARAMETERS];
  gpt_real* gradients[PARAMETERS];
  uint64_t elements[PARAMETERS];
  int lent, opened, done, add;
} arrays;

static void lend(void* context, int first, int count, const gpt_real** values) {
  arrays* a = context;
  for (int i = 0; i < count; i++) values[i] = a->values[first + i];
  a->lent += count;
}

static void give_back(void* context, int first, int count) {
  (void)first;
  ((arrays*)context)->lent -= count;
}

static void expect(void* context, int first, int count) {
  (void)context, (void)first, (void)count;
}

static gpt_real* gradient_open(void* context, int index, int* add) {
  arrays* a = context;
  a->opened++;
  *add = a->add;
  return a->gradients[index];
}

static void gradient_done(void* context, int index) {
  (void)index;
  ((arrays*)context)->done++;
}

static gpt_real* array_of(uint64_t elements) {
  gpt_real* values = malloc(elements * sizeof *values);
  if (!values) exit(2);
  return values;
}

static uint8_t tokens[ROWS * WINDOW], targets[ROWS * WINDOW];

static double loss(gpt_model* model) {
  return gpt_loss(model, tokens, targets, ROWS, WINDOW);
}

// Larger values than a training run starts from, so that no part of the model is nearly linear.
static void fill(arrays* a) {
  gpt_random random = gpt_random_from(7, 0);
  for (int i = 0; i < PARAMETERS; i++) {
    gpt_parameter parameter;
    gpt_parameter_describe(&shape, i, &parameter);
    a->elements[i] = parameter.elements;
    a->values[i] = array_of(parameter.elements);
    a->gradients[i] = array_of(parameter.elements);
    for (uint64_t k = 0; k < parameter.elements; k++) {
      a->values[i][k] = (gpt_real)(0.4 * gpt_random_normal(&random));
      a->gradients[i][k] = (gpt_real)NAN; // "write every element"
    }
  }
  for (int i = 0; i < ROWS * WINDOW; i++) {
    tokens[i] = (uint8_t)(gpt_random_next(&random) % 5); // so that tokens come twice
    targets[i] = (uint8_t)(gpt_random_next(&random) % 256);
  }
}

static double difference(gpt_model* model, gpt_real* value, gpt_real step) {
  const gpt_real old = *value;
  *value = old + step;
  const double above = loss(model);
  *value = old - step;
  const double below = loss(model);
  *value = old;
  return (above - below) / (2 * (double)step);
}

// The largest error over all elements of one parameter, as a share of its largest gradient.
static double element_error(gpt_model* model, arrays* a, int index) {
  double largest = 0, error = 0;
  for (uint64_t k = 0; k < a->elements[index]; k++) {
    const double exact = difference(model, &a->values[index][k], (gpt_real)1e-5);
    const double wrong = fabs(exact - (double)a->gradients[index][k]);
    if (!(wrong <= error)) error = wrong; // a NaN stays
    largest = fmax(largest, fabs(exact));
  }
  return error / largest;
}

// Along the gradient the slope of the loss is the gradient's length.
static double length_error(gpt_model* model, arrays* a, int index) {
  gpt_real* values = a->values[index];
  gpt_real* old = array_of(a->elements[index]);
  double squares = 0, side[2];
  for (uint64_t k = 0; k < a->elements[index]; k++)
    squares += (double)a->gradients[index][k] * (double)a->gradients[index][k];
  const double length = sqrt(squares), step = 2e-2;
  for (uint64_t k = 0; k < a->elements[index]; k++) old[k] = values[k];
  for (int s = 0; s < 2; s++) {
    for (uint64_t k = 0; k < a->elements[index]; k++)
      values[k] = (gpt_real)(old[k] + (s ? -step : step) * (double)a->gradients[index][k] / length);
    side[s] = loss(model);
  }
  for (uint64_t k = 0; k < a->elements[index]; k++) values[k] = old[k];
  free(old);
  return fabs((side[0] - side[1]) / (2 * step) - length) / length;
}

int main(void) {
  static arrays a;
  const int is_double = sizeof(gpt_real) == sizeof(double);
  const double allowed = is_double ? 1e-7 : 5e-3;
  int failed = 0;
  fill(&a);
  const gpt_store store = {&a, lend, give_back, expect, gradient_open, gradient_done, NULL, NULL};
  gpt_model* model = gpt_model_create(&shape, ROWS, WINDOW, store);
  if (!model) return 2;

  const double first = gpt_loss_and_gradients(model, tokens, targets, ROWS, WINDOW, 1);
  if (first != loss(model) || a.lent != 0 || a.opened != PARAMETERS || a.done != PARAMETERS) {
    printf("a pass must open and finish each of %d gradients once, and give back every loan\n",
           PARAMETERS);
    failed = 1;
  }
  for (int i = 0; i < PARAMETERS; i++) {
    gpt_parameter parameter;
    gpt_parameter_describe(&shape, i, &parameter);
    const double error = is_double ? element_error(model, &a, i) : length_error(model, &a, i);
    const int wrong = !(error <= allowed);
    printf("%-36s %8.1e%s\n", parameter.name, error, wrong ? "  wrong" : "");
    failed |= wrong;
  }

  // A second pass that adds, at twice the scale, leaves three times the gradient.
  gpt_real* once[PARAMETERS];
  for (int i = 0; i < PARAMETERS; i++) {
    once[i] = array_of(a.elements[i]);
    for (uint64_t k = 0; k < a.elements[i]; k++) once[i][k] = a.gradients[i][k];
  }
  a.add = 1;
  gpt_loss_and_gradients(model, tokens, targets, ROWS, WINDOW, 2);
  for (int i = 0; i < PARAMETERS; i++) {
    double error = 0, squares = 0;
    for (uint64_t k = 0; k < a.elements[i]; k++) {
      const double wrong = (double)a.gradients[i][k] - 3 * (double)once[i][k];
      error += wrong * wrong;
      squares += (double)once[i][k] * (double)once[i][k];
    }
    if (!(error <= 1e-10 * squares)) {
      printf("parameter %d: adding a gradient does not add\n", i);
      failed = 1;
    }
    free(once[i]);
    free(a.values[i]);
    free(a.gradients[i]);
  }
  gpt_model_destroy(model);
  printf("%s: %s\n", is_double ? "double" : "float", failed ? "wrong" : "right");
  return failed;
}
