// One kind after the other; inside a kind a ladder of rungs, each a little costlier than the one
// before, and the first that fits.  Every rung is a whole plan, so its total is what a run would
// allocate.
// SPDX-License-Identifier: BSD-3-Clause
#include "plan/memory_advice.h"

#include <algorithm>
#include <optional>

#include "base/checked.h"
#include "base/dtype.h"
#include "base/error.h"
#include "plan/bucket_layout.h"

namespace zero::plan {
namespace {

constexpr int32_t kFewestOpenBuckets = 2;
constexpr int32_t kMostRanks = 4096;
constexpr int64_t kSmallestMicroBatchPart = 1024;

// Buckets smaller than these cost more in tables and padding than they save.
constexpr uint64_t kLeastBucket = uint64_t{1} << 12;
constexpr uint64_t kMostBuckets = 4096;

// What does not fit into 64 bits fits nowhere else either.
uint64_t sum(uint64_t a, uint64_t b) {
  return b > UINT64_MAX - a ? UINT64_MAX : a + b;
}

const char* kind_name(AdviceKind kind) {
  switch (kind) {
    case AdviceKind::kSmallerBuckets:
      return "smaller buckets";
    case AdviceKind::kRemainderMasters:
      return "masters as remainders";
    case AdviceKind::kNextStage:
      return "a higher stage";
    case AdviceKind::kOffload:
      return "offload to the host";
    case AdviceKind::kMoreRanks:
      return "more ranks";
    case AdviceKind::kSmallerMicroBatch:
      return "a smaller micro-batch";
  }
  return "?";
}

class Search {
 public:
  Search(const MemoryQuestion& question, const ParameterTable& model)
      : question_(question), model_(model) {}

  std::vector<Advice> run();
  const Advice& smallest() const { return smallest_; }

 private:
  struct Tried {
    PlanSettings settings;
    uint64_t plan_bytes; // at their place
    uint64_t host_bytes; // beside that
  };
  static Tried tried(const Plan& plan);
  uint64_t program_bytes(int64_t divisor) const;
  std::shared_ptr<const Plan> make(const PlanSettings& settings) const;
  std::optional<Tried> attempt(const PlanSettings& settings);
  std::optional<Tried> first_on_ladder(const PlanSettings& from, bool also_as_it_is);
  std::optional<Tried> higher_stage(const PlanSettings& from);
  std::optional<Tried> offloaded();
  std::optional<Tried> more_ranks();
  std::optional<Tried> with_remainders();
  std::optional<Advice> smaller_micro_batch();
  Advice advice(AdviceKind kind, const Tried& tried, int64_t divisor = 1) const;
  void add(std::vector<Advice>& list, AdviceKind kind, const std::optional<Tried>& tried) const;

  const MemoryQuestion& question_;
  const ParameterTable& model_;
  AdviceKind kind_ = AdviceKind::kSmallerBuckets; // of what is being tried
  Advice smallest_{AdviceKind::kSmallerBuckets, {}, {}, 1, UINT64_MAX, 0, UINT64_MAX};
};

uint64_t Search::program_bytes(int64_t divisor) const {
  const auto part = static_cast<uint64_t>(divisor);
  return sum(divide_up(question_.program_bytes, part), divide_up(question_.failed_bytes, part));
}

// Null where these settings are refused, such as stage 3 with a caller's storage.
std::shared_ptr<const Plan> Search::make(const PlanSettings& settings) const {
  try {
    return Plan::make(settings, model_);
  } catch (const Error&) {
    return nullptr;
  }
}

std::optional<Search::Tried> Search::attempt(const PlanSettings& settings) {
  const auto plan = make(settings);
  if (plan == nullptr) return std::nullopt;
  const Tried made = tried(*plan);
  const uint64_t total = sum(made.plan_bytes, program_bytes(1));
  if (total < smallest_.total_bytes) smallest_ = advice(kind_, made);
  if (total > question_.limit) return std::nullopt;
  return made;
}

Search::Tried Search::tried(const Plan& plan) {
  const uint64_t here = plan.memory.placed[plan.memory.place][ZERO_MEMORY_TOTAL];
  return {plan.settings, here, plan.memory.bytes[ZERO_MEMORY_TOTAL] - here};
}

// The largest bucket that the settings and the model make, before reduce_bucket_elements.
uint64_t largest_bucket(const PlanSettings& settings, const ParameterTable& model) {
  uint64_t elements = 0;
  for (const Parameter& parameter : model.parameters()) {
    if (parameter.role == ZERO_PARAM_TRAINED) elements += parameter.elements;
  }
  return std::min(elements, bucket_limit(settings, elements));
}

uint64_t two_largest_loans(const Plan& plan) {
  uint64_t first = 0, second = 0;
  for (const GatherUnit& unit : plan.units) {
    if (unit.persistent) continue;
    second = std::max(second, std::min(first, unit.elements));
    first = std::max(first, unit.elements);
  }
  return first + second;
}

std::optional<Search::Tried> Search::first_on_ladder(const PlanSettings& from, bool also_as_it_is) {
  PlanSettings now = from;
  if (also_as_it_is) {
    if (const auto tried = attempt(now)) return tried;
  }
  const Placement placement = Placement::of_stage(now.stage);
  if (placement.gradients_sharded &&
      (now.open_buckets == 0 || now.open_buckets > kFewestOpenBuckets)) {
    now.open_buckets = kFewestOpenBuckets;
    if (const auto tried = attempt(now)) return tried;
  }
  if (placement.parameters_sharded) {
    const auto plan = make(now);
    const uint64_t least = plan == nullptr ? 0 : two_largest_loans(*plan);
    if (least > 0 && least < plan->live_elements) {
      now.live_elements = least;
      if (const auto tried = attempt(now)) return tried;
    }
  }
  const uint64_t largest = largest_bucket(now, model_);
  uint64_t bucket = largest / 4;
  while (bucket >= std::max(kLeastBucket, largest * 64 / kMostBuckets)) {
    now.reduce_bucket_elements = bucket;
    if (const auto tried = attempt(now)) return tried;
    bucket /= 4;
  }
  if (placement.parameters_sharded && now.persistence_threshold_elements > 0) {
    now.persistence_threshold_elements = 0;
    if (const auto tried = attempt(now)) return tried;
  }
  return std::nullopt;
}

std::optional<Search::Tried> Search::with_remainders() {
  bool any = false;
  for (const Parameter& parameter : model_.parameters()) {
    if (parameter.role != ZERO_PARAM_TRAINED) continue;
    if (parameter.dtype == ZERO_DTYPE_FP16) return std::nullopt;
    any = any || parameter.dtype == ZERO_DTYPE_BF16;
  }
  PlanSettings now = question_.settings;
  const bool narrow = now.master_is_remainder || now.master_dtype != ZERO_DTYPE_FP32;
  if (!any || narrow || now.all_gradients_at_once || !now.optimizer_present) return std::nullopt;
  now.master_is_remainder = true;
  return attempt(now);
}

// The first stage that fits as it is, or else with smaller buckets.  One rank has nobody to share
// with.
std::optional<Search::Tried> Search::higher_stage(const PlanSettings& from) {
  if (from.group.ranks == 1) return std::nullopt;
  PlanSettings now = from;
  for (now.stage = from.stage + 1; now.stage <= 3; ++now.stage) {
    if (const auto tried = first_on_ladder(now, /*also_as_it_is=*/true)) return tried;
  }
  return std::nullopt;
}

// The optimizer at each stage that shards it, then at stage 3 the parameters too.
std::optional<Search::Tried> Search::offloaded() {
  PlanSettings now = question_.settings;
  const bool elementwise = now.optimizer_present && !now.all_gradients_at_once;
  if (now.place != ZERO_PLACE_DEVICE || !elementwise) return std::nullopt;
  if (!now.offload_optimizer) {
    now.offload_optimizer = true;
    for (now.stage = std::max(1, now.stage); now.stage <= 3; ++now.stage) {
      if (const auto tried = first_on_ladder(now, /*also_as_it_is=*/true)) return tried;
    }
  }
  now.stage = 3;
  if (now.offload_param) return std::nullopt;
  now.offload_param = true;
  return first_on_ladder(now, /*also_as_it_is=*/true);
}

// Twice as many as long as needed: at the stage of now if that shards at all, else at a higher one.
std::optional<Search::Tried> Search::more_ranks() {
  PlanSettings now = question_.settings;
  while (now.group.ranks <= kMostRanks / 2) {
    now.group.ranks *= 2;
    if (now.group.kind == ZERO_COMM_SELF) now.group.kind = ZERO_COMM_LOCAL;
    if (question_.own_staging_bytes) {
      now.group.own_staging_bytes = question_.own_staging_bytes(now.group.ranks);
    }
    if (now.stage > 0) {
      if (const auto tried = attempt(now)) return tried;
    }
    if (const auto tried = higher_stage(now)) return tried;
  }
  return std::nullopt;
}

std::optional<Advice> Search::smaller_micro_batch() {
  const auto plan = make(question_.settings);
  if (plan == nullptr || program_bytes(1) == 0) return std::nullopt;
  const Tried made = tried(*plan);
  const uint64_t bytes = made.plan_bytes;
  const int64_t samples = question_.micro_batch;
  const int64_t most = samples > 0 ? samples : kSmallestMicroBatchPart;
  for (int64_t divisor = 2; divisor <= most; ++divisor) {
    const bool possible = samples > 0 ? samples % divisor == 0 : (divisor & (divisor - 1)) == 0;
    if (!possible || bytes > question_.limit) continue;
    if (program_bytes(divisor) > question_.limit - bytes) continue;
    return advice(AdviceKind::kSmallerMicroBatch, made, divisor);
  }
  return std::nullopt;
}

Advice Search::advice(AdviceKind kind, const Tried& tried, int64_t divisor) const {
  Advice made{kind, tried.settings, {}, divisor, tried.plan_bytes, tried.host_bytes, 0};
  made.total_bytes = sum(tried.plan_bytes, program_bytes(divisor));
  const PlanSettings& was = question_.settings;
  const PlanSettings& now = tried.settings;
  const auto change = [&](const char* key, uint64_t before, uint64_t after) {
    if (before != after) made.changes.emplace_back(key, std::to_string(after));
  };
  change("zero_optimization.stage", static_cast<uint64_t>(was.stage),
         static_cast<uint64_t>(now.stage));
  change("libzero.open_buckets", static_cast<uint64_t>(was.open_buckets),
         static_cast<uint64_t>(now.open_buckets));
  change("libzero.live_parameters", was.live_elements, now.live_elements);
  change("zero_optimization.reduce_bucket_size", was.reduce_bucket_elements,
         now.reduce_bucket_elements);
  change("zero_optimization.stage3_param_persistence_threshold", was.persistence_threshold_elements,
         now.persistence_threshold_elements);
  if (was.offload_optimizer != now.offload_optimizer) {
    made.changes.emplace_back("zero_optimization.offload_optimizer.device", "\"cpu\"");
  }
  if (was.offload_param != now.offload_param) {
    made.changes.emplace_back("zero_optimization.offload_param.device", "\"cpu\"");
  }
  if (was.master_is_remainder != now.master_is_remainder) {
    made.changes.emplace_back("libzero.master_weights", "\"remainder\"");
  }
  if (divisor > 1) {
    made.changes.emplace_back("gradient_accumulation_steps",
                              std::to_string(question_.accumulation_steps * divisor));
    if (question_.micro_batch > 0) {
      made.changes.emplace_back("train_micro_batch_size_per_gpu",
                                std::to_string(question_.micro_batch / divisor));
    }
  }
  return made;
}

void Search::add(std::vector<Advice>& list, AdviceKind kind,
                 const std::optional<Tried>& tried) const {
  if (tried) list.push_back(advice(kind, *tried));
}

std::vector<Advice> Search::run() {
  std::vector<Advice> list;
  add(list, kind_, first_on_ladder(question_.settings, /*also_as_it_is=*/false));
  kind_ = AdviceKind::kRemainderMasters;
  add(list, kind_, with_remainders());
  kind_ = AdviceKind::kNextStage;
  add(list, kind_, higher_stage(question_.settings));
  kind_ = AdviceKind::kOffload;
  add(list, kind_, offloaded());
  kind_ = AdviceKind::kMoreRanks;
  add(list, kind_, more_ranks());
  if (const auto made = smaller_micro_batch()) list.push_back(*made);
  return list;
}

} // namespace

std::string Advice::text() const {
  std::string line = kind_name(kind);
  std::string separator = ": ";
  if (kind == AdviceKind::kMoreRanks) {
    line += format(": %d ranks", settings.group.ranks);
    separator = ", ";
  }
  for (const auto& [key, value] : changes) {
    line += separator + "\"" + key + "\": " + value;
    separator = ", ";
  }
  line += format(" -> %llu bytes", static_cast<unsigned long long>(total_bytes));
  if (total_bytes != plan_bytes) {
    line += format(" (plan %llu, host program %llu)", static_cast<unsigned long long>(plan_bytes),
                   static_cast<unsigned long long>(total_bytes - plan_bytes));
  }
  if (kind == AdviceKind::kOffload) {
    line += format(", beside %llu of host memory", static_cast<unsigned long long>(host_bytes));
  }
  if (kind == AdviceKind::kSmallerMicroBatch) {
    line += ", where what the host program holds is in proportion to it";
  }
  return line;
}

std::vector<Advice> memory_advice(const MemoryQuestion& question, const ParameterTable& model,
                                  Advice* smallest) {
  Search search(question, model);
  std::vector<Advice> list = search.run();
  *smallest = search.smallest();
  return list;
}

} // namespace zero::plan
