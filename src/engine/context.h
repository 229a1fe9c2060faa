// What the parts of a runtime share.  Made by the runtime before the parts and outliving them.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <memory>

#include "comm/communicator.h"
#include "config/settings.h"
#include "device/device.h"
#include "engine/failure.h"
#include "engine/log.h"
#include "engine/program_memory.h"
#include "engine/storage.h"
#include "kernels/kernels.h"
#include "memory/ledger.h"
#include "plan/plan.h"

namespace zero::engine {

class CollectiveSequence;

struct Context {
  config::Settings settings;
  std::shared_ptr<comm::Communicator> comm;
  std::unique_ptr<device::Device> device;
  std::unique_ptr<device::Device> host_beside; // null where the device is the host itself
  const kernels::KernelTable* kernels = nullptr;
  std::shared_ptr<const plan::Plan> plan;
  memory::Ledger ledger;
  uint64_t charged_bytes[memory::kPlaces] = {}; // of the plan, by place
  std::unique_ptr<ProgramMemory> program_memory;
  Failure failure;
  Log log;
  std::unique_ptr<Storage> storage;
  std::unique_ptr<CollectiveSequence> sequence;
  std::atomic<double> loss_scale{1}; // of the gradients to come; any thread
  float loss_scale_fp32 = 1; // the same where the host program reads it
  uint64_t bytes_sent = 0; // in this step; counted where collectives are issued

  void set_loss_scale(double scale) {
    loss_scale = scale;
    loss_scale_fp32 = static_cast<float>(scale);
  }
  // Threads and plain memory of the host.
  device::Device& host() const { return host_beside ? *host_beside : *device; }
  int32_t rank() const { return comm->rank(); }
  int32_t ranks() const { return comm->size(); }
  const plan::Bucket& bucket(int32_t number) const {
    return plan->buckets[static_cast<size_t>(number)];
  }
  const plan::Parameter& parameter(zero_param_id param) const {
    return plan->model.parameters()[static_cast<size_t>(param)];
  }
};

} // namespace zero::engine
