// Steps from a DeepSpeed checkpoint's pickles to its state; each reads one part and checks it.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "checkpoint/deepspeed_state.h"

namespace zero::checkpoint {

struct DeepSpeedBuild {
  // Models, then optimizers; of a universal one optimizer_state.pt, then each parameter's files.
  std::vector<std::unique_ptr<DeepSpeedArchive>>& archives;
  size_t models = 0;
  DeepSpeedState& state;
  std::unordered_map<std::string, int32_t> by_name;
  std::vector<std::vector<int32_t>> members; // of each group, in the order of its flat buffer

  const DeepSpeedArchive& model(size_t rank) const { return *archives[rank]; }
  const DeepSpeedArchive& optimizer(size_t rank) const { return *archives[models + rank]; }
  size_t ranks() const { return archives.size() - models; }
};

// Parameters, buffers, ties, counters, client state: what rank 0's model file says.
void build_deepspeed_model(DeepSpeedBuild* build);
// Frozen parameters that are cut among the model files (stage 3).
void build_deepspeed_frozen(DeepSpeedBuild* build);
// Masters and states by stage.
void build_deepspeed_unsharded(DeepSpeedBuild* build); // 0
void build_deepspeed_flat_groups(DeepSpeedBuild* build); // 1 and 2
void build_deepspeed_partitions(DeepSpeedBuild* build); // 3
// folder: the one that holds a folder for each parameter.
void build_deepspeed_universal(DeepSpeedBuild* build, const std::string& folder);
// Rates and decays of each group, from torch's param_groups.
void build_deepspeed_groups(DeepSpeedBuild* build, const DeepSpeedArchive& archive,
                            PickleRef param_groups);
void build_deepspeed_scaler(DeepSpeedBuild* build, const DeepSpeedArchive& archive,
                            PickleRef optimizer);

// What one state (a dict of tensors by name) holds; the names must be the same for all of them.
struct DeepSpeedMoments {
  int64_t step = -1; // -1: not said
  std::vector<PickleRef> tensors; // by state.state_names
};
DeepSpeedMoments read_deepspeed_moments(DeepSpeedBuild* build, const DeepSpeedArchive& archive,
                                        PickleRef dict);

// Elements [begin, begin + count) of a tensor as elements [param_begin, ...) of a parameter.
DeepSpeedPiece deepspeed_piece(const DeepSpeedBuild& build, uint32_t archive, PickleRef tensor,
                               const std::string& what, uint64_t begin, uint64_t param_begin,
                               uint64_t count);
// A number that may be an integer, a float or a tensor of one element.
double read_deepspeed_number(const DeepSpeedArchive& archive, PickleRef node,
                             const std::string& what);

// As JSON text: an object without the keys in `without` (null: with all).  Tensors and bytes are
// written as {"dtype", "shape", "hex"} and {"hex"}; tuples and sets as lists.
std::string deepspeed_json(const DeepSpeedArchive& archive, PickleRef dict,
                           const std::vector<std::string>& without);

} // namespace zero::checkpoint
