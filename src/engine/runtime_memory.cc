// The runtime's memory: what it holds itself, what the host program holds through it, and what is
// said when there is not enough.
// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <new>

#include "engine/memory_report.h"
#include "engine/runtime.h"

namespace zero::engine {
namespace {

const char* beside_the_device(zero_place trains, zero_place at) {
  if (at == trains) return "";
  return at == ZERO_PLACE_PINNED ? " of pinned memory" : " of host memory";
}

} // namespace

void Runtime::allocate() {
  const plan::MemoryPlan& memory = context_.plan->memory;
  for (const zero_place place : plan::kPlacesHeld) {
    const uint64_t total = memory.placed[place][ZERO_MEMORY_TOTAL];
    if (!context_.ledger.charge(place, total)) {
      const uint64_t budget = context_.ledger.budget();
      fail_planned(Error(ZERO_ERR_OUT_OF_MEMORY,
                         format("zero_shard_params: the plan's %llu bytes%s do not fit into "
                                "libzero.memory_budget = %llu",
                                static_cast<unsigned long long>(total),
                                beside_the_device(memory.place, place),
                                static_cast<unsigned long long>(budget))),
                   place, budget);
    }
    context_.charged_bytes[place] = total;
    for (int32_t use = 1; use < 16; ++use) {
      if (memory.placed[place][use] == 0) continue;
      context_.ledger.plan(place, use, memory.placed[place][use]);
    }
  }
  context_.storage =
      std::make_unique<Storage>(*context_.plan, *context_.comm, *context_.device, context_.host(),
                                allocator_ ? &*allocator_ : nullptr, context_.ledger);
  try {
    context_.storage->allocate_private();
  } catch (const Error& error) {
    if (error.status() == ZERO_ERR_OUT_OF_MEMORY) fail_short(error);
    throw;
  }
}

void Runtime::allocate_shared() {
  try {
    context_.storage->allocate_shared();
  } catch (const Error& error) {
    if (error.status() == ZERO_ERR_OUT_OF_MEMORY) fail_short(error);
    throw;
  }
}

// What could be had is what there is.
void Runtime::fail_short(const Error& error) {
  const zero_place place = context_.plan->memory.place;
  fail_planned(error, place,
               std::max<uint64_t>(1, context_.ledger.current(place, ZERO_MEMORY_TOTAL)));
}

void Runtime::fail_planned(const Error& error, zero_place place, uint64_t limit) {
  MemoryShortage shortage;
  shortage.place = place;
  shortage.plan = context_.plan;
  shortage.plan_is_held = false;
  shortage.limit = limit;
  throw with_memory_report(context_, error, shortage);
}

void Runtime::note_no_memory() noexcept {
  if (context_.comm->size() == 1) return;
  context_.failure.record_no_memory();
  context_.failure.mark_told();
  context_.comm->abort();
}

void* Runtime::allocate_memory(zero_place place, uint64_t bytes, uint64_t alignment) {
  if (context_.failure.failed()) { // said from any thread, so that the calling one still hears why
    fail(ZERO_ERR_FAILED, "zero_memory_allocate: this runtime has failed: %s",
         context_.failure.text().c_str());
  }
  try {
    return context_.program_memory->allocate(place, bytes, alignment);
  } catch (const Error& error) {
    if (error.status() != ZERO_ERR_OUT_OF_MEMORY) throw;
    MemoryShortage shortage;
    shortage.place = place;
    shortage.failed_bytes = bytes;
    shortage.plan = held_plan();
    throw with_memory_report(context_, error, shortage);
  }
}

std::shared_ptr<const plan::Plan> Runtime::held_plan() const {
  const std::lock_guard<std::mutex> lock(parts_mutex_);
  return held_plan_;
}

std::string Runtime::explain_memory(zero_place place, uint64_t failed_bytes) const {
  MemoryShortage shortage;
  shortage.place = place;
  shortage.failed_bytes = failed_bytes;
  shortage.plan = held_plan();
  const uint64_t budget = context_.ledger.budget();
  std::string text =
      format("%llu bytes were asked for", static_cast<unsigned long long>(failed_bytes));
  if (budget > 0) {
    text += format("; libzero.memory_budget is %llu", static_cast<unsigned long long>(budget));
  }
  for (const std::string& line : memory_report(context_, shortage)) text += "\n" + line;
  return text + "\n";
}

void Runtime::free_memory(void* memory) noexcept {
  if (memory == nullptr || context_.program_memory->free(memory)) return;
  try {
    context_.log.write(ZERO_LOG_WARN,
                       format("zero_memory_free: %p is not from zero_memory_allocate of this "
                              "runtime, or free already",
                              memory));
  } catch (const std::bad_alloc&) {
    // No memory for the line.
  }
}

} // namespace zero::engine
