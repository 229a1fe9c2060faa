// A whole small training run on prescribed gradients, on one rank: the body of the matrix tests.
// Every gradient is a pure function of (step, micro-batch, rank, parameter, element), so that runs
// of any shape can be compared bit for bit, and against a reference in double.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <zero.h>

#include <string>
#include <vector>

#include "ranks.h"

namespace training {

struct ParamSpec {
  std::string name;
  std::vector<int64_t> shape;
  zero_param_role role = ZERO_PARAM_TRAINED;
  int32_t tied_to = -1;
  int32_t unit = -1;
  int32_t group = 0;
  uint64_t elements() const {
    uint64_t count = 1;
    for (const int64_t extent : shape) count *= static_cast<uint64_t>(extent);
    return count;
  }
};

using ModelSpec = std::vector<ParamSpec>;

enum class Order { kReverse, kForward, kRandom };
enum class Transport { kLocal, kUser };

struct RunSpec {
  int32_t ranks = 1;
  int32_t stage = 0;
  uint64_t bucket = 500000000;
  int32_t overlap = 0;
  bool prefetch = false;
  zero_storage storage = ZERO_STORAGE_LIBRARY;
  Order order = Order::kReverse;
  std::string open_buckets = "4";
  int32_t accumulation = 1;
  bool reproducible = false;
  double clipping = 0.5;
  int32_t steps = 50;
  // Of every parameter but those of group 1, which stay fp32 (norms beside 16-bit weights).
  zero_dtype dtype = ZERO_DTYPE_FP32;
  std::string precision; // more keys of the bf16 or fp16 section, ", \"key\": value"
  bool submit = false; // gradients by zero_grad_submit instead of in place
  int32_t absent_unit = -1; // on rank 1 (if any) this unit has no gradient: closed
  std::string optimizer = R"({"type": "AdamW", "params": {"lr": 0.01, "weight_decay": 0.1}})";
  std::string top; // more keys of the file, ", \"key\": value"
  zero_dtype rounded = 0; // the host program rounds its gradients to it first
  std::string libzero; // more keys, ", \"key\": value"
  Transport transport = Transport::kLocal;
  zero_comm* comm = nullptr; // instead of a local one
  // A checkpoint to go on from, its steps counted in `steps`; and where one is saved, after so
  // many.
  std::string load;
  std::string save;
  int32_t save_after = -1;
  bool save_in_background = false;
  bool with_state = false; // Result.state is filled
};

// Elements in memory of any of the three dtypes; rounded to nearest even.
void put(void* memory, zero_dtype dtype, uint64_t index, float value);
float get(const void* memory, zero_dtype dtype, uint64_t index);
zero_dtype dtype_of(const ParamSpec& param, const RunSpec& spec);

// The initial value and the gradients.
float initial_value(size_t param, uint64_t element);
float gradient(int32_t step, int32_t micro, int32_t rank, size_t param, uint64_t element);

std::string config_text(const RunSpec& spec);
std::string describe(const RunSpec& spec);

// Registers the model; values: filled with the initial values, kept alive by the caller.
zero_model* make_model(const ModelSpec& model, const RunSpec& spec,
                       std::vector<std::vector<char>>* values);

struct Result {
  std::vector<float> params; // all trained roots, frozen and buffers too, in order of registration
  std::vector<double> norms; // of each step
  std::vector<double> scales; // after each step
  std::vector<float> state; // masters and optimizer states of all trained roots
};
// Runs one rank to the end.
Result train(const ModelSpec& model, const RunSpec& spec, int32_t rank, const std::string& group);

// The same by threads or forked ranks; the results of all ranks must be equal, bit for bit.
Result run_with_threads(const ModelSpec& model, const RunSpec& spec);
Result run_with_processes(const ModelSpec& model, const RunSpec& spec);

// The optimizer and clipping in double, unsharded: what rounding left out would have given.  AdamW,
// Adam with adam_w_mode false, SGD with a momentum of 0.9; lr 0.01 and weight decay 0.1 of each.
std::vector<double> reference(const ModelSpec& model, const RunSpec& spec);

// Models.
ModelSpec awkward_model(); // the shapes of the corpus' awkward-toy, floats as fp32
ModelSpec gpt_model(); // a GPT-2 with every dimension divided, its blocks as units

} // namespace training
