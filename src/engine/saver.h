// Saves the state of a run: which rank writes what, and that all ranks end the same way.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <memory>
#include <string>

#include "checkpoint/checkpoint_folder.h"
#include "engine/background_save.h"
#include "engine/context.h"
#include "engine/parameter_loans.h"
#include "engine/stepper.h"

namespace zero::engine {

struct SaveOptions {
  bool replace = false;
  bool in_background = false;
  bool weights_only = false;
  int32_t keep_last = 0;
  int32_t keep_every = 0;
  std::string latest; // "": none
};

// Throws INVALID_STATE in the middle of a step, of a micro-batch or of its accumulation, or with
// parameters on loan.
void check_between_steps(const GradientReducer& reducer, const ParameterLoans& loans,
                         const Stepper& stepper, const char* call);

class Saver {
 public:
  Saver(Context& context, GradientReducer& reducer, ParameterLoans& loans, Stepper& stepper,
        std::string config);

  // [collective]
  void save(const std::string& path, const SaveOptions& options);
  // True: none in flight.  Throws the error of one that failed.
  bool poll() const;
  // [collective] Until none is; throws the error of one that failed, for the last time.
  void wait();
  // The host program's own state; 0 bytes: forgotten.
  void put(const std::string& key, const void* bytes, uint64_t count);

  // Staging memory that no save is written from.
  struct Memory {
    std::byte* memory = nullptr;
    uint64_t bytes = 0;
  };
  Memory idle_staging() const;

  // What this run is called in its checkpoints; 0: not named yet.
  uint64_t run() const { return run_; }
  void set_run(uint64_t run) { run_ = run; }

 private:
  void check_options(const std::string& path, const SaveOptions& options) const;
  void agree_on_call(const std::string& path, const SaveOptions& options);
  void agree_on_ids(checkpoint::Manifest* manifest);
  void gather_blobs(checkpoint::Manifest* manifest);
  checkpoint::Manifest describe(bool weights_only);
  checkpoint::Source live_state(const checkpoint::Manifest& manifest) const;
  void write_now(const checkpoint::Staging& staging, checkpoint::Manifest* manifest,
                 const std::function<void(const checkpoint::Manifest&)>& publish);
  void copy_beside(const std::function<void()>& work, const checkpoint::Manifest& manifest) const;
  checkpoint::Source copied_state(const checkpoint::Manifest& manifest) const;

  Context& context_;
  GradientReducer& reducer_;
  ParameterLoans& loans_;
  Stepper& stepper_;
  const std::string config_;
  uint64_t run_ = 0;
  std::map<std::string, std::shared_ptr<const std::string>> blobs_;
  std::unique_ptr<BackgroundSave> background_; // the one in flight, or ended and not waited for
};

} // namespace zero::engine
