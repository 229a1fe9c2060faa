// zero_optimization: stages, offload, group sizes; and libzero's own keys.
// SPDX-License-Identifier: BSD-3-Clause
#include "base/error.h"
#include "config/judgement.h"

namespace zero::config {
namespace {

void check_offload(const std::string& which, int64_t stage, Judgement* judgement) {
  const std::string section = "zero_optimization." + which;
  const std::string key = section + ".device";
  const std::string device = judgement->text(key);
  if (device == "none") return;
  const bool is_param = which == "offload_param";
  const std::string named = which + ".device=" + device;
  if (is_param && stage < 3) {
    judgement->warn(key, format("%s: only meaningful at stage 3, ignored at stage %d",
                                named.c_str(), static_cast<int>(stage)));
    return;
  }
  if (stage < 1) {
    judgement->warn(key, named + ": only meaningful at stages 1 to 3, ignored at stage 0");
    return;
  }
  if (device == "nvme" && stage < 3) {
    judgement->refuse(
        key,
        format("%s: needs stage 3, the file has stage %d", named.c_str(), static_cast<int>(stage)),
        ZERO_ERR_CONFIG_CONFLICT);
  }
  if (device == "nvme" && !judgement->given(section + ".nvme_path")) {
    judgement->refuse(key, named + ": needs " + section + ".nvme_path, a directory");
  }
  const bool is_satisfied = device == "cpu" && judgement->text("libzero.device") == "host";
  if (is_satisfied) {
    judgement->notes.push_back(key + ": with libzero.device host everything is in host memory");
  } else {
    judgement->later.push_back(key + " = \"" + device + "\"");
  }
}

void check_group_size(const char* key, const char* name, const char* what, Judgement* judgement) {
  const int64_t size = judgement->integer(key, 0);
  if (size <= 1) return;
  const int64_t world = judgement->world_size;
  if (world > 0 && world % size != 0) {
    judgement->refuse(key,
                      format("%s %lld does not divide world size %lld", name,
                             static_cast<long long>(size), static_cast<long long>(world)),
                      ZERO_ERR_CONFIG_CONFLICT);
    return;
  }
  judgement->warn(key, format("%s=%lld: %s not implemented, treated as off (memory only)", name,
                              static_cast<long long>(size), what));
}

void check_libzero(Judgement* judgement) {
  if (judgement->number("libzero.comm_timeout_seconds") <= 0) {
    judgement->refuse("libzero.comm_timeout_seconds",
                      "libzero.comm_timeout_seconds: 0, expected more than 0");
  }
  if (judgement->text("libzero.device") == "cuda") {
    judgement->later.push_back("libzero.device = \"cuda\"");
  }
  const std::string comm = judgement->text("libzero.comm");
  if (comm == "gloo" || comm == "nccl") {
    judgement->later.push_back("libzero.comm = \"" + comm + "\"");
  }
}

} // namespace

void check_sharding(Judgement* judgement) {
  const int64_t stage = judgement->integer("zero_optimization.stage", 0);
  check_offload("offload_optimizer", stage, judgement);
  check_offload("offload_param", stage, judgement);
  const char* ratio = "zero_optimization.offload_optimizer.ratio";
  if (judgement->number(ratio) < 1 && stage < 3) {
    judgement->refuse(ratio, std::string(ratio) + ": below 1 needs stage 3",
                      ZERO_ERR_CONFIG_CONFLICT);
  }
  check_group_size("zero_optimization.zero_hpz_partition_size", "zero_hpz_partition_size",
                   "secondary shards", judgement);
  check_group_size("zero_optimization.mics_shard_size", "mics_shard_size", "shard groups",
                   judgement);
  check_libzero(judgement);
}

} // namespace zero::config
