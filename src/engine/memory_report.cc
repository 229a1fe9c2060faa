// SPDX-License-Identifier: BSD-3-Clause
#include "engine/memory_report.h"

#include <algorithm>
#include <utility>

#include "comm/communicator.h"
#include "memory/process_memory.h"
#include "plan/memory_advice.h"
#include "plan/plan_text.h"

namespace zero::engine {
namespace {

using Number = unsigned long long;

uint64_t program_bytes(const Context& context, zero_place place) {
  return context.ledger.current(place, ZERO_MEMORY_HOST_PROGRAM);
}

// "optimizer 60, grads 30, ...", the biggest first.
std::string by_use(const plan::MemoryPlan& memory, zero_place place) {
  std::vector<std::pair<uint64_t, int32_t>> uses;
  for (int32_t use = ZERO_MEMORY_PARAMS; use <= ZERO_MEMORY_TABLES; ++use) {
    if (memory.placed[place][use] > 0) uses.emplace_back(memory.placed[place][use], use);
  }
  std::stable_sort(uses.begin(), uses.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string text;
  for (const auto& [bytes, use] : uses) {
    text += format("%s%s %llu", text.empty() ? "" : ", ", plan::memory_use_name(use),
                   static_cast<Number>(bytes));
  }
  return text;
}

std::string holders(const Context& context, const MemoryShortage& shortage) {
  std::string text;
  if (shortage.plan != nullptr &&
      shortage.plan->memory.placed[shortage.place][ZERO_MEMORY_TOTAL] > 0) {
    const plan::MemoryPlan& memory = shortage.plan->memory;
    text = format("%s %llu bytes (%s)", shortage.plan_is_held ? "libzero holds" : "the plan has",
                  static_cast<Number>(memory.placed[shortage.place][ZERO_MEMORY_TOTAL]),
                  by_use(memory, shortage.place).c_str());
  } else {
    text = "libzero holds 0 bytes there";
  }
  return text + format(", the host program %llu by zero_memory_allocate",
                       static_cast<Number>(program_bytes(context, shortage.place)));
}

// Resident memory of this process that is not in the ledger.
std::string others(const Context& context) {
  const memory::ProcessMemory process = memory::read_process_memory();
  const uint64_t held = context.ledger.current(ZERO_PLACE_HOST, ZERO_MEMORY_TOTAL);
  const uint64_t shared = context.ledger.shared();
  const uint64_t own = held - std::min(held, shared);
  const uint64_t rest = process.private_bytes - std::min(process.private_bytes, own);
  std::string text =
      format("others in this process hold about %llu bytes", static_cast<Number>(rest));
  if (process.machine_bytes > 0) {
    text += format("; of the machine's %llu bytes %llu are available",
                   static_cast<Number>(process.machine_bytes),
                   static_cast<Number>(process.available_bytes));
  }
  if (process.group_limit_bytes > 0) {
    text += format("; the control group's limit is %llu",
                   static_cast<Number>(process.group_limit_bytes));
  }
  if (process.address_limit_bytes > 0) {
    text += format("; the limit of address space is %llu",
                   static_cast<Number>(process.address_limit_bytes));
  }
  return text;
}

// Without a limit that binds, a change fits if it sets free what was asked for.
uint64_t limit_of(const Context& context, const MemoryShortage& shortage, uint64_t held) {
  if (shortage.limit > 0) return shortage.limit;
  const uint64_t budget = context.ledger.budget();
  const bool binds = budget > 0 && (held > budget || shortage.failed_bytes > budget - held);
  return binds ? budget : held;
}

void add_advice(const Context& context, const MemoryShortage& shortage,
                std::vector<std::string>* lines) {
  const plan::Plan& plan = *shortage.plan;
  plan::MemoryQuestion question;
  question.settings = plan.settings;
  question.program_bytes = program_bytes(context, shortage.place);
  question.failed_bytes = shortage.failed_bytes;
  question.limit =
      limit_of(context, shortage,
               plan.memory.placed[shortage.place][ZERO_MEMORY_TOTAL] + question.program_bytes);
  const zero_comm_kind kind = plan.settings.group.kind == ZERO_COMM_SELF
                                  ? static_cast<zero_comm_kind>(ZERO_COMM_LOCAL)
                                  : plan.settings.group.kind;
  question.own_staging_bytes = [kind](int32_t ranks) {
    return comm::staging_bytes_for(kind, ranks);
  };
  question.micro_batch = context.settings.micro_batch;
  question.accumulation_steps = context.settings.accumulation_steps;
  plan::Advice smallest;
  const std::vector<plan::Advice> advice = plan::memory_advice(question, plan.model, &smallest);
  if (advice.empty()) {
    lines->push_back(format("no change tried here fits into %llu bytes; the least was %s",
                            static_cast<Number>(question.limit), smallest.text().c_str()));
    return;
  }
  for (size_t i = 0; i < advice.size(); ++i) {
    lines->push_back(format("%s%zu. %s", i == 0 ? "what fits, cheapest first: " : "", i + 1,
                            advice[i].text().c_str()));
  }
}

} // namespace

std::vector<std::string> memory_report(const Context& context, const MemoryShortage& shortage) {
  std::vector<std::string> lines = {holders(context, shortage)};
  const bool planned = shortage.plan != nullptr && shortage.plan->memory.place == shortage.place;
  if (planned) add_advice(context, shortage, &lines);
  if (shortage.place == ZERO_PLACE_HOST) lines.push_back(others(context));
  return lines;
}

Error with_memory_report(Context& context, const Error& error, const MemoryShortage& shortage) {
  try {
    std::string text;
    for (const std::string& line : memory_report(context, shortage)) {
      text += (text.empty() ? "" : "; ") + line;
    }
    const Error whole = error.with_context(text);
    context.log.write(ZERO_LOG_ERROR, whole.message());
    return whole;
  } catch (const std::exception&) {
    return error; // no memory for the report either
  }
}

} // namespace zero::engine
