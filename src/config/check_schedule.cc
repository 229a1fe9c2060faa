// scheduler: what each type reads and needs.
// SPDX-License-Identifier: BSD-3-Clause
#include "base/error.h"
#include "config/judgement.h"
#include "config/optimizer_rules.h"

namespace zero::config {
namespace {

const char kParams[] = "scheduler.params.";

void require(const char* name, const std::string& type, Judgement* judgement) {
  const std::string key = std::string(kParams) + name;
  const Effective& one = judgement->values.at(key);
  if (!one.value.is(NodeKind::kNull) || one.is_hole) return;
  judgement->refuse("scheduler.type", key + ": missing, " + type + " needs it");
}

void check_readers(const std::string& name, Judgement* judgement) {
  const auto type = schedule_type(name).value_or(ScheduleType::kConstant);
  for (const Option& option : options()) {
    const std::string key = option.key;
    if (!key.starts_with(kParams) || !judgement->given(key) || schedule_reads(type, key)) continue;
    judgement->warn(key, key + ": has no effect with scheduler " + (name.empty() ? "none" : name));
  }
}

void check_warmup(const std::string& name, Judgement* judgement) {
  const std::string word = judgement->text("scheduler.params.warmup_type");
  if (word != "log" && word != "linear") {
    judgement->warn("scheduler.params.warmup_type", "scheduler.params.warmup_type: " + word +
                                                        ", expected log or linear; log is taken");
  }
  if (name == "WarmupLR") return;
  require("total_num_steps", name, judgement);
  const int64_t total = judgement->integer("scheduler.params.total_num_steps", 0);
  const int64_t warmup = judgement->integer("scheduler.params.warmup_num_steps", 0);
  if (total > 0 && total < warmup) {
    judgement->warn("scheduler.params.total_num_steps",
                    format("scheduler.params.total_num_steps: %lld, less than the warm-up's %lld",
                           static_cast<long long>(total), static_cast<long long>(warmup)));
  }
}

// The default of WarmupDecayLR surprises who wrote a rate into the optimizer.
void check_peak(const std::string& name, Judgement* judgement) {
  const char* peak = "scheduler.params.warmup_max_lr";
  if (name != "WarmupDecayLR" || judgement->given(peak)) return;
  if (judgement->values.at(peak).is_hole || !judgement->given("optimizer.params.lr")) return;
  const double lr = judgement->number("optimizer.params.lr");
  if (lr == judgement->number(peak)) return;
  judgement->warn(
      "scheduler.type",
      format("%s: absent, so WarmupDecayLR goes to 0.001 and not to optimizer.params.lr "
             "%s",
             peak, number_text(lr).c_str()));
}

} // namespace

void check_schedule(Judgement* judgement) {
  const std::string name = judgement->text("scheduler.type");
  check_readers(name, judgement);
  if (name.starts_with("Warmup")) {
    check_warmup(name, judgement);
    check_peak(name, judgement);
  } else if (name == "OneCycle") {
    require("cycle_min_lr", name, judgement);
    require("cycle_max_lr", name, judgement);
  }
}

} // namespace zero::config
