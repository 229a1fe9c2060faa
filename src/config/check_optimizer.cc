// optimizer: names, what each type reads, defaults that depend on the type.
// SPDX-License-Identifier: BSD-3-Clause
#include "base/error.h"
#include "config/judgement.h"
#include "config/optimizer_rules.h"

namespace zero::config {
namespace {

const char kType[] = "optimizer.type";
const char kNames[] = "Adam|AdamW|SGD|Adagrad|Lion|Lamb|Muon|libzero.host";

bool decays_like_adamw(OptimizerType type, const Judgement& judgement) {
  return type == OptimizerType::kAdamW ||
         (type == OptimizerType::kAdam && judgement.truth("optimizer.params.adam_w_mode"));
}

void set_default(Judgement* judgement, const char* key, const char* json) {
  if (judgement->given(key)) return;
  judgement->values.at(key).value = read_json(json, RootRule::kAnyValue).root;
}

void refuse_name(const std::string& name, Judgement* judgement) {
  // What its parameters are called does not matter then.
  std::erase_if(judgement->diagnostics, [](const Diagnostic& one) {
    return !one.is_error && one.key.starts_with("optimizer.params.");
  });
  if (is_one_bit(name)) {
    judgement->refuse(kType, "optimizer " + name + ": not supported with ZeRO",
                      ZERO_ERR_UNSUPPORTED);
    return;
  }
  const std::string nearest = nearest_choice(name, kNames);
  judgement
      ->refuse(kType, "optimizer.type: " + name + ", expected one of " + std::string(kNames),
               ZERO_ERR_UNSUPPORTED)
      .suggestion = nearest;
}

// A key of params that nobody reads is said so.
void check_readers(OptimizerType type, const std::string& name, Judgement* judgement) {
  for (const Option& option : options()) {
    const std::string key = option.key;
    if (!key.starts_with("optimizer.params.") || !judgement->given(key)) continue;
    const bool says_what_holds =
        type == OptimizerType::kAdamW && key.ends_with(".adam_w_mode") && judgement->truth(key);
    if (optimizer_reads(type, key) || says_what_holds) continue;
    judgement->warn(key, key + ": has no effect with optimizer " + name);
  }
}

} // namespace

void settle_defaults(Judgement* judgement) {
  const auto type = optimizer_type(judgement->text(kType)).value_or(OptimizerType::kNone);
  if (type == OptimizerType::kAdagrad) {
    set_default(judgement, "optimizer.params.lr", "0.01");
    set_default(judgement, "optimizer.params.eps", "1e-10");
  }
  if (type == OptimizerType::kMuon) {
    set_default(judgement, "optimizer.params.betas", "[0.9, 0.95]");
    set_default(judgement, "optimizer.params.eps", "1e-10");
    set_default(judgement, "optimizer.params.momentum", "0.95");
    if (judgement->given("optimizer.params.lr")) {
      const std::string lr = to_json(judgement->at("optimizer.params.lr"));
      set_default(judgement, "optimizer.params.muon_lr", lr.c_str());
      set_default(judgement, "optimizer.params.adam_lr", lr.c_str());
    }
  }
  if (decays_like_adamw(type, *judgement) && judgement->truth("optimizer.params.torch_adam")) {
    set_default(judgement, "optimizer.params.weight_decay", "0.01");
  }
  if (judgement->text("scheduler.type") == "WarmupLR") {
    set_default(judgement, "scheduler.params.warmup_max_lr",
                to_json(judgement->at("optimizer.params.lr")).c_str());
  }
  for (const auto& [fall, rise] : {std::pair("scheduler.params.cycle_second_step_size",
                                             "scheduler.params.cycle_first_step_size"),
                                   std::pair("scheduler.params.cycle_second_stair_count",
                                             "scheduler.params.cycle_first_stair_count")}) {
    set_default(judgement, fall, to_json(judgement->at(rise)).c_str());
  }
}

void check_optimizer(Judgement* judgement) {
  const std::string name = judgement->text(kType);
  if (name.empty()) {
    judgement->notes.push_back(
        "optimizer: the file names none, so the host program must; zero_shard_params fails without "
        "optimizer.type");
    check_readers(OptimizerType::kNone, "none", judgement);
    return;
  }
  const auto type = optimizer_type(name);
  if (!type) {
    refuse_name(name, judgement);
    return;
  }
  check_readers(*type, name, judgement);
  const char* clip = "optimizer.params.max_grad_norm";
  if (judgement->given(clip)) {
    judgement->refuse(clip, std::string(clip) + ": moved, expected as gradient_clipping")
        .suggestion = "gradient_clipping";
  }
  const bool is_static_lamb = *type == OptimizerType::kLamb && judgement->truth("fp16.enabled") &&
                              judgement->number("fp16.loss_scale") != 0;
  if (is_static_lamb) {
    judgement->refuse("fp16.loss_scale", "fp16.loss_scale: Lamb needs a dynamic scale, expected 0",
                      ZERO_ERR_CONFIG_CONFLICT);
  }
  if (judgement->truth("optimizer.params.nesterov") && *type == OptimizerType::kSgd &&
      !(judgement->number("optimizer.params.momentum") > 0 &&
        judgement->number("optimizer.params.dampening") == 0)) {
    judgement->refuse("optimizer.params.nesterov",
                      "optimizer.params.nesterov: needs a momentum above 0 and dampening 0",
                      ZERO_ERR_CONFIG_CONFLICT);
  }
}

} // namespace zero::config
