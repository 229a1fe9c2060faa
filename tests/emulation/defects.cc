// Runs the kernel of defects.h that its argument names, says how it ended.
// SPDX-License-Identifier: BSD-3-Clause
#include "defects.h"

#include <cstdio>
#include <cstring>
#include <vector>

int main(int, char** arguments) {
  using namespace defects;
  std::vector<float> in(256, 1.0f), out(64), partial(4);
  float* const to = out.data();
  float total = 0;
  unsigned ticket = 0;
  const auto is = [&](const char* name) { return std::strcmp(arguments[1], name) == 0; };
  const auto run = [&](auto kernel, unsigned blocks, auto... values) {
    zero::cuda::launch_grid(kernel, dim3(blocks), 64, nullptr, values...);
  };
  const float* const from = in.data();
  if (is("divergent_barrier")) run(&divergent_barrier, 1, to);
  if (is("early_exit")) run(&early_exit, 1, to, 40);
  if (is("outside_global")) run(&outside_global, 2, to, 1);
  if (is("outside_shared")) run(&outside_shared, 1, to);
  if (is("misaligned")) run(&misaligned, 1, from, to);
  if (is("lane_not_in_mask")) run(&lane_not_in_mask, 1, to);
  if (is("caller_not_in_mask")) run(&caller_not_in_mask, 1, to);
  if (is("divergent_shuffle")) run(&divergent_shuffle, 1, to);
  if (is("unset_shared")) run(&unset_shared, 1, to);
  if (is("race_global")) run(&race_global, 2, to);
  if (is("two_sums")) run(&two_sums, 4, from, partial.data(), &ticket, &total);
  bool has_nan = false;
  for (const float value : out) has_nan = has_nan || value != value;
  std::printf("finished%s, total %g\n", has_nan ? " with NaN" : "", static_cast<double>(total));
}
