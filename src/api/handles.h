// What the opaque handles of zero.h hold.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <zero.h>

#include <atomic>
#include <memory>

#include "api/wall.h"
#include "checkpoint/checkpoint_reader.h"
#include "comm/communicator.h"
#include "config/config.h"
#include "engine/runtime.h"
#include "plan/plan.h"

struct zero_config {
  zero::config::Config config;
};

struct zero_model {
  zero::plan::ParameterTable table;
};

struct zero_plan {
  std::shared_ptr<const zero::plan::Plan> plan;
};

struct zero_comm {
  std::shared_ptr<zero::comm::Communicator> comm;
  // Shared by all handles on one communicator: it serves one runtime at a time.
  std::shared_ptr<std::atomic<bool>> serves_runtime = std::make_shared<std::atomic<bool>>(false);
};

struct zero_runtime {
  std::unique_ptr<zero::engine::Runtime> runtime;
  zero_comm comm; // borrowed by zero_runtime_comm
  zero_config config; // as it took effect
  zero_plan plan;
  ~zero_runtime() {
    runtime.reset();
    if (comm.serves_runtime) comm.serves_runtime->store(false);
  }
};

struct zero_checkpoint {
  zero::checkpoint::CheckpointReader reader;
  std::vector<zero::checkpoint::Damage> damages; // of the last verify
  zero_progress progress{}; // report: nobody
};

namespace zero::api {

// As guard, for calls on a runtime: what came out of a collective ends the runtime, and so does a
// collective that may have been left half-done for want of memory.
template <typename Function>
zero_status guard_runtime(zero_runtime* runtime, Function&& function) noexcept {
  return guard([&] {
    require(runtime, "runtime");
    try {
      function(*runtime->runtime);
    } catch (const Error& error) {
      runtime->runtime->note(error);
      throw;
    } catch (const std::bad_alloc&) {
      runtime->runtime->note_no_memory();
      throw;
    }
  });
}

// A runtime on the host: the calling thread is the stream.
inline void require_host_stream(const void* stream) {
  if (stream == nullptr) return;
  fail(ZERO_ERR_INVALID_ARGUMENT, "stream is %p, expected NULL: this runtime lives in host memory",
       stream);
}

} // namespace zero::api
