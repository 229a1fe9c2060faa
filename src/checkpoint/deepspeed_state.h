// The state of a DeepSpeed checkpoint (stages 0 to 3, written by torch.save) as one whole: which
// parameters, and in which bytes of which file each part of each of them lies.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <zero.h>

#include <memory>
#include <string>
#include <vector>

#include "checkpoint/deepspeed_archive.h"

namespace zero::checkpoint {

// Elements [begin, begin + count) of a parameter.
struct DeepSpeedPiece {
  uint32_t archive = 0;
  uint64_t offset = 0; // bytes, in the file
  zero_dtype dtype = ZERO_DTYPE_FP32;
  uint64_t begin = 0;
  uint64_t count = 0;
};

struct DeepSpeedParameter {
  std::string name;
  std::vector<int64_t> shape;
  uint64_t elements = 1;
  zero_dtype dtype = ZERO_DTYPE_FP32; // of the model
  zero_param_role role = ZERO_PARAM_TRAINED;
  int32_t group = 0;
  int32_t tied_to = -1; // an earlier one, whose storage this is; it has no pieces then
  int64_t step = 0; // updates that this parameter has had
  std::vector<DeepSpeedPiece> value; // empty at stage 3, when trained: its master, rounded
  std::vector<DeepSpeedPiece> master; // trained only
  std::vector<std::vector<DeepSpeedPiece>> states; // by DeepSpeedState::state_names
};

struct DeepSpeedGroup {
  double lr = 0, weight_decay = 0, beta1 = 0, beta2 = 0, epsilon = 0, momentum = 0;
  bool has_betas = false, has_momentum = false;
};

struct DeepSpeedScaler {
  bool dynamic = false;
  double scale = 1;
  int64_t iteration = 0;
  int64_t last_overflow = -1;
  int64_t hysteresis = 1; // credits left
};

struct DeepSpeedState {
  int32_t stage = 0;
  int32_t world_size = 1;
  zero_dtype compute_dtype = ZERO_DTYPE_FP32; // fp16 or bf16 where the config enables it
  std::vector<DeepSpeedParameter> parameters; // in the module's order
  std::vector<DeepSpeedGroup> groups;
  std::vector<std::string> state_names; // "exp_avg", "exp_avg_sq"; or those of another optimizer
  int64_t global_steps = 0; // skipped ones included
  int64_t skipped_steps = 0;
  int64_t global_samples = 0;
  int64_t scheduler_iteration = -1; // last_batch_iteration; -1 where there is no scheduler
  DeepSpeedScaler scaler;
  std::string client_state; // a JSON object
  std::string config; // ds_config as a JSON object
  std::string version; // of DeepSpeed
};

class DeepSpeedReader {
 public:
  // folder: the one that holds `latest`, or the tag's own.  Reads the pickles and checks that every
  // part of every parameter is there; no tensor is read.  Throws NOT_FOUND, FILE_FORMAT,
  // FILE_INCOMPLETE naming the rank whose file is missing, UNSUPPORTED.
  explicit DeepSpeedReader(const std::string& folder);

  const DeepSpeedState& state() const { return state_; }
  // Compares the CRC of every entry of every file.
  void verify() const;
  // Elements [offset, offset + count) of one part, as fp32; of a buffer or a frozen parameter as it
  // is.  VALUE of a trained one in the model's dtype.
  void read(int32_t parameter, zero_part part, int32_t index, uint64_t offset, uint64_t count,
            void* out) const;

 private:
  void read_pieces(const DeepSpeedParameter& parameter, const std::vector<DeepSpeedPiece>& pieces,
                   uint64_t offset, uint64_t count, zero_dtype dtype, void* out) const;

  std::vector<std::unique_ptr<DeepSpeedArchive>> archives_;
  DeepSpeedState state_;
};

} // namespace zero::checkpoint
