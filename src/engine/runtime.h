// A runtime: its life, its parts, and what each call of zero.h asks of them.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>

#include "config/config.h"
#include "engine/collective_sequence.h"
#include "engine/context.h"
#include "engine/gradient_reducer.h"
#include "engine/loader.h"
#include "engine/parameter_access.h"
#include "engine/parameter_loans.h"
#include "engine/saver.h"
#include "engine/stepper.h"
#include "engine/weights_transfer.h"

namespace zero::engine {

class Runtime {
 public:
  // comm: kept.  allocator: copied, or null.  device: null for the one that the config names.
  Runtime(const config::Config& config, std::shared_ptr<comm::Communicator> comm,
          const zero_allocator* allocator, std::unique_ptr<device::Device> device = nullptr);
  ~Runtime(); // never waits for a peer
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // [collective]
  void shard_params(const plan::ParameterTable& model);
  void close();

  // Throw INVALID_STATE before shard_params (naming call), the failure of a failed runtime, FAILED.
  GradientReducer& reducer(const char* call);
  ParameterLoans& loans(const char* call);
  Stepper& stepper(const char* call);
  ParameterAccess& access(const char* call);
  Saver& saver(const char* call);
  Loader& loader(const char* call);
  WeightsTransfer weights(const char* call); // of the call in hand
  const plan::Plan& plan(const char* call) const; // also after a failure
  const Storage& storage(const char* call) const;

  // A call on this runtime ends with this error; what came out of a collective ends the runtime
  // too.
  void note(const Error& error) noexcept;
  // A call ended where the heap did: peers, if any, may be waiting for its collective.
  void note_no_memory() noexcept;

  // Any thread, also of a failed runtime.
  zero_status status() const { return context_.failure.status(); }
  std::string text() const;
  int64_t steps() const;
  const memory::Ledger& ledger() const { return context_.ledger; }
  memory::Ledger& ledger() { return context_.ledger; }
  void* allocate_memory(zero_place place, uint64_t bytes, uint64_t alignment);
  void free_memory(void* memory) noexcept;
  // Any thread; see zero_memory_explain.
  std::string explain_memory(zero_place place, uint64_t failed_bytes) const;
  Log& log() { return context_.log; }
  const config::Config& config() const { return config_; }
  const std::shared_ptr<comm::Communicator>& comm() const { return context_.comm; }
  const std::shared_ptr<const plan::Plan>& shared_plan() const { return context_.plan; }
  double loss_scale() const { return context_.loss_scale.load(); }
  float* loss_scale_fp32() { return &context_.loss_scale_fp32; }

 private:
  struct Parts {
    Parts(Context& context, const std::string& config)
        : reducer(context),
          loans(context, reducer),
          stepper(context, reducer, loans),
          access(context, loans, stepper),
          saver(context, reducer, loans, stepper, config),
          loader(context, reducer, loans, stepper, saver) {}
    GradientReducer reducer;
    ParameterLoans loans;
    Stepper stepper;
    ParameterAccess access;
    Saver saver;
    Loader loader;
  };
  void require(const char* call);
  void check_model(const plan::ParameterTable& model) const;
  void make_plan(const plan::ParameterTable& model);
  bool overlap() const;
  void allocate();
  void allocate_shared();
  void undo_shard();
  void set_parts(std::unique_ptr<Parts> parts);

  config::Config config_;
  std::optional<zero_allocator> allocator_;
  Context context_;
  std::shared_ptr<const plan::Plan> held_plan() const; // any thread; null without a model
  [[noreturn]] void fail_short(const Error& error);
  [[noreturn]] void fail_planned(const Error& error, zero_place place, uint64_t limit);

  // Also guards held_plan_.  Held where parts_ changes and where any thread reads it; the one
  // calling thread reads it freely.
  mutable std::mutex parts_mutex_;
  std::unique_ptr<Parts> parts_;
  std::shared_ptr<const plan::Plan> held_plan_; // while parts_ are there
  std::atomic<bool> closed_{false};
};

} // namespace zero::engine
