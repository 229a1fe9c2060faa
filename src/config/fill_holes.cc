// Fills "auto" from what a front end knows, as Accelerate and the HF Trainer do.
// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>

#include "config/judgement.h"
#include "config/option_value.h"

namespace zero::config {
namespace {

class Filler {
 public:
  Filler(const zero_config_facts& facts, Judgement* judgement)
      : facts_(facts), judgement_(judgement) {}

  void run() {
    fill_batch();
    fill_precision();
    fill_optimizer();
    fill_schedule();
    fill_sizes();
    number("gradient_clipping", facts_.gradient_clipping);
  }

 private:
  bool open(const char* key) const { return judgement_->values.at(key).is_hole; }

  // A fact is judged like a written value.
  void put(const char* key, const Node& node) {
    Effective& one = judgement_->values.at(key);
    const Reading reading = read_value(*find_option(key), node, true);
    one.is_hole = false;
    one.origin = "facts";
    if (reading.value) {
      one.value = *reading.value;
      return;
    }
    one.value = node;
    judgement_->refuse(key, std::string(key) + ": filled with " + to_json(node) + ", expected " +
                                reading.expected);
  }

  void integer(const char* key, int64_t value) {
    if (open(key) && value >= 0) put(key, Node::number(std::to_string(value)));
  }
  void number(const char* key, double value) {
    if (open(key) && !std::isnan(value)) put(key, Node::number(number_text(value)));
  }
  void boolean(const char* key, bool value) {
    if (open(key)) put(key, Node::boolean(value));
  }

  void fill_batch() {
    integer("train_micro_batch_size_per_gpu", facts_.micro_batch_size);
    integer("gradient_accumulation_steps", facts_.accumulation_steps);
    // An open train batch is the front end's product, so the front end's accumulation is in it
    // even where the file has no such key.
    const bool has_accumulation = judgement_->given("gradient_accumulation_steps");
    if (open("train_batch_size") && !has_accumulation && facts_.accumulation_steps >= 0) {
      put("gradient_accumulation_steps", Node::number(std::to_string(facts_.accumulation_steps)));
    }
    // A file without any batch size is given the front end's.
    Effective& micro = judgement_->values.at("train_micro_batch_size_per_gpu");
    const bool no_size =
        micro.value.is(NodeKind::kNull) && judgement_->at("train_batch_size").is(NodeKind::kNull);
    if (no_size && facts_.micro_batch_size >= 0) {
      put("train_micro_batch_size_per_gpu", Node::number(std::to_string(facts_.micro_batch_size)));
    }
  }

  void fill_precision() {
    if (facts_.compute_dtype == 0) return;
    boolean("fp16.enabled", facts_.compute_dtype == ZERO_DTYPE_FP16);
    boolean("bf16.enabled", facts_.compute_dtype == ZERO_DTYPE_BF16);
  }

  void fill_optimizer() {
    number("optimizer.params.lr", facts_.learning_rate);
    number("optimizer.params.eps", facts_.epsilon);
    number("optimizer.params.weight_decay", facts_.weight_decay);
    const char* betas = "optimizer.params.betas";
    if (!open(betas) || std::isnan(facts_.beta1) || std::isnan(facts_.beta2)) return;
    Node pair;
    pair.kind = NodeKind::kArray;
    pair.items = {Node::number(number_text(facts_.beta1)), Node::number(number_text(facts_.beta2))};
    put(betas, pair);
  }

  void fill_schedule() {
    integer("scheduler.params.warmup_num_steps", facts_.warmup_steps);
    integer("scheduler.params.total_num_steps", facts_.total_steps);
    // The rate is the optimizer's, which the facts may just have filled.
    const bool has_own = judgement_->given("optimizer.params.lr");
    const double lr = has_own ? judgement_->number("optimizer.params.lr") : facts_.learning_rate;
    number("scheduler.params.warmup_max_lr", lr);
    if (!std::isnan(lr)) number("scheduler.params.warmup_min_lr", 0);
  }

  void fill_sizes() {
    const int64_t h = facts_.hidden_size;
    constexpr int64_t kLargest = 1000000000; // h * h stays within 64 bits
    if (h < 0 || h > kLargest) return;
    integer("zero_optimization.reduce_bucket_size", h * h);
    integer("zero_optimization.stage3_prefetch_bucket_size",
            static_cast<int64_t>(0.9 * static_cast<double>(h) * static_cast<double>(h)));
    integer("zero_optimization.stage3_param_persistence_threshold", 10 * h);
  }

  const zero_config_facts& facts_;
  Judgement* judgement_;
};

} // namespace

void fill_holes(const Source& source, Judgement* judgement) {
  if (source.has_facts) Filler(source.facts, judgement).run();
}

void report_open_holes(Judgement* judgement) {
  std::vector<std::pair<Position, std::string>> open;
  bool samples_only = true;
  for (const auto& [key, one] : judgement->values) {
    if (!one.is_hole || !hole_must_be_filled(key)) continue;
    open.emplace_back(one.position, key);
    samples_only =
        samples_only && (key == "train_batch_size" || key == "train_micro_batch_size_per_gpu");
  }
  if (open.empty()) return;
  std::sort(open.begin(), open.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first.line, a.first.column) < std::pair(b.first.line, b.first.column);
  });
  std::string list;
  for (const auto& [position, key] : open) list += (list.empty() ? "" : ", ") + key;
  Diagnostic& finding =
      judgement->refuse(open.front().second,
                        "unresolved \"auto\": " + list + "; write values, or fill them from facts");
  finding.concerns_samples_only = samples_only;
}

} // namespace zero::config
