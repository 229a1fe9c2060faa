// Muon (Jordan et al. 2024): hidden matrices step along an orthogonalised momentum, everything else
// by AdamW.  Orthogonalising needs the whole matrix, so directions are gathered bucket by bucket;
// each rank that owns a part of a matrix computes it whole, in one order, so that the bits are the
// same at every stage. SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include "engine/bucket_transfer.h"
#include "engine/fused_update.h"

namespace zero::engine {

// Trained, of two dimensions of 2 or more, tied to nothing, and not named like an embedding or a
// head: no part of the name is embed, wte, wpe, head, token, position.
bool is_hidden_matrix(const plan::ParameterTable& model, zero_param_id param);
// Floats that the largest such matrix needs to be orthogonalised.
uint64_t matrix_workspace_elements(const plan::ParameterTable& model);

class MatrixUpdate {
 public:
  MatrixUpdate(Context& context, const FusedUpdate& update, const GradientReducer& reducer);

  // pre: FusedUpdate::prepare.
  void prepare(const GroupValueTable& groups, const optim::Rates& rates, double lr_override,
               double grad_factor);
  bool has_matrix(int32_t bucket) const { return has_matrix_[static_cast<size_t>(bucket)] != 0; }
  // Matrices: the direction takes the place of the gradient.  The rest is stepped by AdamW.
  void directions(int32_t bucket);
  // On the gather stream: the whole bucket's directions (from stage 1 on).
  void gather(const comm::CollectiveStamp& stamp);
  // Orthogonalises every matrix this rank owns a part of, and steps that part.
  void apply(int32_t bucket);

 private:
  static void run_directions(void* context, uint64_t begin, uint64_t end, int32_t index);

  Context& context_;
  const FusedUpdate& update_;
  const GradientReducer& reducer_;
  BucketTransfer transfer_;
  std::vector<uint8_t> is_matrix_; // by parameter
  std::vector<uint8_t> has_matrix_; // by bucket
  std::vector<kernels::MuonConstants> momenta_;
  std::vector<kernels::ApplyConstants> steps_;
};

} // namespace zero::engine
