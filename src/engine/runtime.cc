// SPDX-License-Identifier: BSD-3-Clause
#include "engine/runtime.h"

#include <cmath>
#include <thread>

#include "base/dtype.h"
#include "engine/agreement.h"
#include "engine/initial_values.h"
#include "engine/settings_inputs.h"

namespace zero::engine {
namespace {

// Which agreement of zero_shard_params this is.
enum Step : uint64_t {
  kPrepared = 9,
  kPlanned = 10,
  kModels = 11,
  kConfigs = 12,
  kGroups = 13,
  kAllocated = 20,
  kStreams = 22,
  kShared = 21,
  kFilled = 30,
  kDone = 40
};

int32_t kernel_threads(const config::Settings& settings, const comm::Communicator& comm) {
  if (settings.threads > 0) return settings.threads;
  const auto cores = static_cast<int32_t>(std::thread::hardware_concurrency());
  return std::max(1, cores / std::max(1, comm.local_size()));
}

std::string group_line(const plan::Group& group) {
  const plan::GroupValues& v = group.values;
  return format("group \"%s\" frozen %d lr %g x %g decay %g betas %g %g eps %g momentum %g",
                group.name.c_str(), v.frozen ? 1 : 0, v.lr, v.lr_scale, v.weight_decay, v.beta1,
                v.beta2, v.epsilon, v.momentum);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

} // namespace

Runtime::Runtime(const config::Config& config, std::shared_ptr<comm::Communicator> comm,
                 const zero_allocator* allocator, std::unique_ptr<device::Device> device)
    : config_(config) {
  context_.settings = config_.settings();
  context_.comm = std::move(comm);
  if (allocator != nullptr) allocator_ = *allocator;
  if (!context_.settings.not_in_this_build.empty()) {
    std::string list;
    for (const std::string& asked : context_.settings.not_in_this_build) {
      list += (list.empty() ? "" : "; ") + asked;
    }
    fail(ZERO_ERR_UNSUPPORTED, "the config asks for what is not in this build: %s", list.c_str());
  }
  if (device != nullptr) {
    context_.device = std::move(device);
  } else {
    context_.device =
        context_.settings.device_is_host
            ? device::make_host_device(kernel_threads(context_.settings, *context_.comm))
            : device::make_cuda_device(-1);
  }
  if (context_.device->place() != ZERO_PLACE_HOST) {
    context_.host_beside =
        device::make_host_device(kernel_threads(context_.settings, *context_.comm));
  }
  context_.ledger.set_budget(context_.settings.memory_budget);
  context_.program_memory = std::make_unique<ProgramMemory>(*context_.device, context_.ledger);
  context_.kernels = &kernels::host_kernels();
  context_.set_loss_scale(optim::initial_loss_scale(loss_scale_rules(context_.settings)).scale);
  config_.check(); // its errors were thrown above; here for its warnings
  for (const config::Diagnostic& finding : config_.diagnostics()) {
    if (!finding.is_error) context_.log.write(ZERO_LOG_WARN, finding.message);
  }
  if (context_.settings.overlap_comm == 1 && !context_.comm->overlap_refusal().empty()) {
    fail(ZERO_ERR_CONFIG_CONFLICT,
         "zero_optimization.overlap_comm is true, but this communicator cannot overlap: %s",
         context_.comm->overlap_refusal().c_str());
  }
}

Runtime::~Runtime() {
  undo_shard();
}

// The sequence goes first: it ends the streams, and with them whatever still uses the parts.
void Runtime::undo_shard() {
  context_.sequence.reset();
  set_parts(nullptr);
  context_.storage.reset();
  for (const zero_place place : plan::kPlacesHeld) {
    context_.ledger.discharge(place, context_.charged_bytes[place]);
    context_.charged_bytes[place] = 0;
  }
  context_.plan.reset();
  context_.ledger.forget_plan();
}

void Runtime::set_parts(std::unique_ptr<Parts> parts) {
  {
    const std::lock_guard<std::mutex> lock(parts_mutex_);
    parts_.swap(parts);
    held_plan_ = parts_ ? context_.plan : nullptr;
  }
  // The old ones go here, when no reader of texts can see them any more.
}

int64_t Runtime::steps() const {
  const std::lock_guard<std::mutex> lock(parts_mutex_);
  return parts_ ? parts_->stepper.steps() : 0;
}

bool Runtime::overlap() const {
  if (context_.settings.overlap_comm >= 0) return context_.settings.overlap_comm == 1;
  return context_.comm->size() > 1 && context_.comm->overlap_refusal().empty();
}

void Runtime::check_model(const plan::ParameterTable& model) const {
  const config::Settings& settings = context_.settings;
  bool trained = false;
  for (const plan::Parameter& parameter : model.parameters()) {
    if (parameter.role == ZERO_PARAM_BUFFER) continue;
    trained = trained || parameter.role == ZERO_PARAM_TRAINED;
    const bool trained_here = parameter.role == ZERO_PARAM_TRAINED;
    if (trained_here && is_16_bit_float(parameter.dtype) &&
        parameter.dtype != settings.compute_dtype) {
      fail(ZERO_ERR_CONFIG_CONFLICT,
           "param \"%s\": dtype is %s, but the config enables %s; expected \"%s\": {\"enabled\": "
           "true}",
           parameter.name.c_str(), dtype_name(parameter.dtype), dtype_name(settings.compute_dtype),
           dtype_name(parameter.dtype));
    }
    if (trained_here && is_16_bit_float(parameter.dtype) && needs_all_gradients(settings) &&
        settings.accumulation_dtype != ZERO_DTYPE_FP32) {
      fail(ZERO_ERR_UNSUPPORTED,
           "data_types.grad_accum_dtype is %s, expected fp32 with optimizer.type libzero.host or "
           "LAMB",
           dtype_name(settings.accumulation_dtype));
    }
    const bool narrow = settings.master_dtype != ZERO_DTYPE_FP32 || settings.master_is_remainder ||
                        settings.state_dtype != ZERO_DTYPE_FP32;
    if (trained_here && is_16_bit_float(parameter.dtype) && narrow &&
        needs_all_gradients(settings)) {
      fail(
          ZERO_ERR_UNSUPPORTED,
          "16-bit masters or states (bf16_master_weights_and_grads, fp16_master_weights_and_grads, "
          "bf16_optimizer_states, libzero.master_weights) with optimizer.type LAMB, Muon or "
          "libzero.host are not in this build; expected Adam, AdamW, SGD, Adagrad or Lion");
    }
    if (trained_here && parameter.dtype == ZERO_DTYPE_FP16 && settings.master_is_remainder) {
      fail(ZERO_ERR_UNSUPPORTED,
           "param \"%s\": libzero.master_weights is \"remainder\" and the dtype fp16, expected "
           "bf16: "
           "only its bits are the upper half of an fp32",
           parameter.name.c_str());
    }
    if (parameter.place != ZERO_PLACE_HOST && parameter.place != ZERO_PLACE_PINNED) {
      fail(ZERO_ERR_INVALID_ARGUMENT,
           "param \"%s\": place is %d, expected host memory (device is host)",
           parameter.name.c_str(), parameter.place);
    }
  }
  if (!trained) return;
  switch (settings.optimizer.type) {
    case config::OptimizerType::kAdam:
    case config::OptimizerType::kAdamW:
    case config::OptimizerType::kSgd:
    case config::OptimizerType::kAdagrad:
    case config::OptimizerType::kLion:
    case config::OptimizerType::kLamb:
    case config::OptimizerType::kMuon:
    case config::OptimizerType::kHost:
      break;
    case config::OptimizerType::kNone:
      fail(ZERO_ERR_CONFIG_VALUE,
           "optimizer.type is not set, expected one of Adam, AdamW, SGD, Adagrad, Lion, LAMB, "
           "Muon, libzero.host: there are parameters to train");
  }
}

void Runtime::make_plan(const plan::ParameterTable& model) {
  PlanSurroundings surroundings;
  surroundings.ranks = context_.comm->size();
  surroundings.comm = context_.comm->kind();
  surroundings.place = context_.device->place();
  surroundings.own_allocator = allocator_.has_value();
  const config::Settings& settings = context_.settings;
  if (settings.initial_values == config::InitialValues::kRank &&
      (settings.initial_rank < 0 || settings.initial_rank >= surroundings.ranks)) {
    fail(ZERO_ERR_CONFIG_VALUE,
         "libzero.initial_values is \"rank:%d\", expected a rank from 0 to %d",
         settings.initial_rank, surroundings.ranks - 1);
  }
  check_model(model);
  context_.plan = plan::Plan::make(plan_settings(settings, surroundings, model), model);
}

void Runtime::shard_params(const plan::ParameterTable& model) {
  context_.failure.check();
  if (closed_) fail(ZERO_ERR_INVALID_STATE, "zero_shard_params: this runtime is closed");
  if (parts_) fail(ZERO_ERR_INVALID_STATE, "zero_shard_params: this runtime already has a model");
  comm::Communicator& comm = *context_.comm;
  // Each phase may fail on one rank alone; then all ranks are told, and stand as before.  A heap
  // that ends inside a collective, where the others wait, goes past it and ends the runtime.
  const auto collective_phase = [&](uint64_t step, auto&& work) {
    std::optional<Error> error;
    try {
      work();
    } catch (const Error& caught) {
      error = caught;
    }
    if (error && is_fatal(error->status())) throw *error;
    agree(comm, step, error ? &*error : nullptr);
  };
  const auto phase = [&](uint64_t step, auto&& work) {
    together(comm, step, work, "zero_shard_params: no memory for the plan's tables");
  };
  try {
    std::vector<std::string> configs, lines, groups;
    phase(kPrepared, [&] {
      configs = lines_of(config_.text());
      for (size_t p = 0; p < model.parameters().size(); ++p) {
        lines.push_back(plan::parameter_line(model, static_cast<zero_param_id>(p)));
      }
      for (const plan::Group& group : model.groups()) groups.push_back(group_line(group));
    });
    agree_on_lines(comm, kConfigs, "configs", configs);
    agree_on_lines(comm, kModels, "models", lines);
    agree_on_lines(comm, kGroups, "groups", groups);
    phase(kPlanned, [&] { make_plan(model); });
    phase(kAllocated, [&] { allocate(); });
    phase(kStreams, [&] {
      context_.sequence = std::make_unique<CollectiveSequence>(
          comm, *context_.device, context_.failure, *context_.plan, overlap());
    });
    collective_phase(kShared, [&] { allocate_shared(); });
    collective_phase(kFilled, [&] { set_initial_values(context_); });
    phase(kDone, [&] { set_parts(std::make_unique<Parts>(context_, config_.text())); });
  } catch (const Error& error) {
    if (is_fatal(error.status())) {
      context_.failure.record_told(error);
    }
    undo_shard();
    throw;
  } catch (...) {
    undo_shard();
    throw;
  }
  try {
    context_.log.write(
        ZERO_LOG_INFO,
        format("stage %d, %d ranks, %zu buckets, %llu bytes on this rank", context_.settings.stage,
               comm.size(), context_.plan->buckets.size(),
               static_cast<unsigned long long>(context_.plan->memory.bytes[ZERO_MEMORY_TOTAL])));
  } catch (const std::bad_alloc&) {
    // No memory for the line.
  }
}

void Runtime::close() {
  context_.failure.check();
  if (closed_) fail(ZERO_ERR_INVALID_STATE, "zero_runtime_close: this runtime is closed already");
  comm::CollectiveStamp stamp;
  stamp.operation = comm::Operation::kBarrier;
  std::optional<Error> unsaved;
  if (parts_) {
    try {
      parts_->saver.wait();
    } catch (const Error& error) { // the same on all ranks
      if (is_fatal(error.status())) throw;
      unsaved = error;
    }
    context_.sequence->drain();
    stamp = context_.sequence->control(comm::Operation::kBarrier, 0);
  }
  context_.comm->barrier(comm::Channel::kControl, stamp);
  closed_ = true;
  if (unsaved) throw *unsaved;
}

void Runtime::note(const Error& error) noexcept {
  const bool from_callback = error.origin() == "callback";
  if (!is_fatal(error.status()) && !from_callback) return;
  context_.failure.record_told(error);
  if (from_callback) context_.comm->abort();
}

void Runtime::require(const char* call) {
  context_.failure.check();
  if (closed_) fail(ZERO_ERR_INVALID_STATE, "%s: this runtime is closed", call);
  if (!parts_) fail(ZERO_ERR_INVALID_STATE, "%s: expected zero_shard_params before", call);
}

GradientReducer& Runtime::reducer(const char* call) {
  require(call);
  return parts_->reducer;
}

ParameterLoans& Runtime::loans(const char* call) {
  require(call);
  return parts_->loans;
}

Stepper& Runtime::stepper(const char* call) {
  require(call);
  return parts_->stepper;
}

ParameterAccess& Runtime::access(const char* call) {
  require(call);
  return parts_->access;
}

WeightsTransfer Runtime::weights(const char* call) {
  require(call);
  return WeightsTransfer(context_, parts_->reducer, parts_->loans, parts_->stepper);
}

Saver& Runtime::saver(const char* call) {
  require(call);
  return parts_->saver;
}

Loader& Runtime::loader(const char* call) {
  require(call);
  return parts_->loader;
}

const plan::Plan& Runtime::plan(const char* call) const {
  if (!parts_) fail(ZERO_ERR_INVALID_STATE, "%s: expected zero_shard_params before", call);
  return *context_.plan;
}

const Storage& Runtime::storage(const char* call) const {
  plan(call);
  return *context_.storage;
}

std::string Runtime::text() const {
  std::string text =
      format("rank %d of %d, stage %d, step %lld", context_.comm->rank(), context_.comm->size(),
             context_.settings.stage, static_cast<long long>(steps()));
  const std::lock_guard<std::mutex> lock(parts_mutex_);
  if (parts_) {
    text += format(", %lld micro-batches since the last step, %d loans open, %d buckets in flight",
                   static_cast<long long>(parts_->reducer.micro_batches()),
                   parts_->loans.open_loans(), parts_->reducer.buckets_in_flight());
  } else if (!closed_) {
    text += ", without a model";
  }
  if (closed_) text += ", closed";
  const std::string failure = context_.failure.text();
  return failure.empty() ? text : text + "; failed: " + failure;
}

} // namespace zero::engine
