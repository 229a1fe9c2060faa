// SPDX-License-Identifier: BSD-3-Clause
#include "engine/matrix_update.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace zero::engine {
namespace {

constexpr uint64_t kGrainElements = 32 * 1024;

struct Part {
  const FusedUpdate* update;
  const kernels::KernelTable* kernels;
  const std::vector<uint8_t>* is_matrix;
  const std::vector<kernels::MuonConstants>* momenta;
  int32_t bucket;
  FusedUpdate::Owned owned;
};

} // namespace

bool is_hidden_matrix(const plan::ParameterTable& model, zero_param_id param) {
  const plan::Parameter& parameter = model.parameters()[static_cast<size_t>(param)];
  if (parameter.role != ZERO_PARAM_TRAINED || parameter.root != param) return false;
  if (parameter.shape.size() != 2 || parameter.shape[0] < 2 || parameter.shape[1] < 2) return false;
  for (const char* word : {"embed", "wte", "wpe", "head", "token", "position"}) {
    if (parameter.name.find(word) != std::string::npos) return false;
  }
  // Tied to another: an embedding and its head.
  for (size_t p = static_cast<size_t>(param) + 1; p < model.parameters().size(); ++p) {
    if (model.parameters()[p].root == param) return false;
  }
  return true;
}

uint64_t matrix_workspace_elements(const plan::ParameterTable& model) {
  uint64_t largest = 0;
  for (size_t p = 0; p < model.parameters().size(); ++p) {
    if (!is_hidden_matrix(model, static_cast<zero_param_id>(p))) continue;
    const plan::Parameter& matrix = model.parameters()[p];
    const auto rows = static_cast<uint64_t>(matrix.shape[0]);
    const auto cols = static_cast<uint64_t>(matrix.shape[1]);
    largest = std::max(largest, matrix.elements + kernels::newton_schulz_workspace(rows, cols));
  }
  return largest;
}

MatrixUpdate::MatrixUpdate(Context& context, const FusedUpdate& update,
                           const GradientReducer& reducer)
    : context_(context),
      update_(update),
      reducer_(reducer),
      transfer_(context, comm::Channel::kGather) {
  if (context.settings.optimizer.type != config::OptimizerType::kMuon) return;
  const size_t params = context.plan->places.size();
  is_matrix_.resize(params);
  momenta_.resize(params);
  steps_.resize(params);
  has_matrix_.resize(context.plan->buckets.size());
  for (size_t p = 0; p < params; ++p) {
    if (!is_hidden_matrix(context.plan->model, static_cast<zero_param_id>(p))) continue;
    is_matrix_[p] = 1;
    has_matrix_[static_cast<size_t>(context.plan->places[p].bucket)] = 1;
  }
}

void MatrixUpdate::prepare(const GroupValueTable& groups, const optim::Rates& rates,
                           double lr_override, double grad_factor) {
  const config::OptimizerSettings& optimizer = context_.settings.optimizer;
  for (size_t p = 0; p < is_matrix_.size(); ++p) {
    if (is_matrix_[p] == 0) continue;
    const plan::Parameter& matrix = context_.plan->model.parameters()[p];
    const optim::HyperParameters hyper = groups.at_update(matrix.group, rates, lr_override);
    // The schedule moves both of Muon's rates alike.
    const double rate = optimizer.lr > 0 ? optimizer.muon_lr * (hyper.lr / optimizer.lr) : 0;
    const double tall = static_cast<double>(matrix.shape[0]) / static_cast<double>(matrix.shape[1]);
    momenta_[p] =
        kernels::MuonConstants{static_cast<float>(grad_factor), static_cast<float>(hyper.momentum),
                               static_cast<float>(1 - hyper.momentum)};
    steps_[p] = kernels::ApplyConstants{static_cast<float>(rate * std::sqrt(std::max(1.0, tall))),
                                        static_cast<float>(1 - rate * hyper.weight_decay)};
  }
}

void MatrixUpdate::run_directions(void* context, uint64_t begin, uint64_t end, int32_t) {
  const Part& part = *static_cast<Part*>(context);
  part.update->for_each_active_run(
      part.bucket, part.owned, begin, end,
      [&](const plan::Run& run, const kernels::UpdateStreams& streams) {
        const auto param = static_cast<size_t>(run.param);
        if ((*part.is_matrix)[param] != 0) {
          part.kernels->muon(streams, (*part.momenta)[param],
                             static_cast<float*>(const_cast<void*>(streams.grad)));
        } else {
          part.update->adam(run.param, streams);
        }
      });
}

void MatrixUpdate::directions(int32_t bucket) {
  Part part{&update_, context_.kernels, &is_matrix_, &momenta_, bucket, update_.owned(bucket)};
  context_.device->parallel(part.owned.end - part.owned.begin, kGrainElements,
                            &MatrixUpdate::run_directions, &part);
}

void MatrixUpdate::gather(const comm::CollectiveStamp& stamp) {
  const uint64_t shard_bytes = context_.bucket(stamp.bucket).shard_elements * sizeof(float);
  BucketTransfer::Ends ends;
  ends.element_bytes = sizeof(float);
  ends.whole = context_.storage->gathered_grads(stamp.bucket);
  // The shard itself may lie in memory that peers do not see; the place of the whole is seen by
  // all.
  std::byte* own = ends.whole + static_cast<uint64_t>(context_.rank()) * shard_bytes;
  std::memcpy(own, reducer_.shard(stamp.bucket), shard_bytes);
  ends.shard = own;
  ends.sendable = context_.storage->may_be_sent(ZERO_MEMORY_BUCKETS);
  transfer_.gather(stamp, stamp.bucket, ends);
}

void MatrixUpdate::apply(int32_t bucket) {
  const FusedUpdate::Owned owned = update_.owned(bucket);
  const auto* whole = reinterpret_cast<const float*>(context_.storage->gathered_grads(bucket));
  float* const matrix = context_.storage->matrix_workspace();
  update_.for_each_active_run(
      bucket, owned, 0, owned.end - owned.begin,
      [&](const plan::Run& run, const kernels::UpdateStreams& streams) {
        const auto param = static_cast<size_t>(run.param);
        if (is_matrix_[param] == 0) return;
        const plan::Parameter& parameter = context_.parameter(run.param);
        const uint64_t start = context_.plan->places[param].offset;
        std::memcpy(matrix, whole + start, parameter.elements * sizeof(float));
        kernels::newton_schulz(matrix, static_cast<uint64_t>(parameter.shape[0]),
                               static_cast<uint64_t>(parameter.shape[1]),
                               matrix + parameter.elements);
        context_.kernels->apply(streams, steps_[param], matrix + run.param_offset);
      });
}

} // namespace zero::engine
