// SPDX-License-Identifier: BSD-3-Clause
#include "cli/plan_report.h"

#include <json/json.h>

namespace zero::cli {
namespace {

double gigabytes(uint64_t bytes) {
  return static_cast<double>(bytes) / 1e9;
}

double gibibytes(uint64_t bytes) {
  return static_cast<double>(bytes) / (1 << 30);
}

std::string base_name(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  return slash == std::string::npos || slash + 1 == path.size() ? path : path.substr(slash + 1);
}

// Small models in MB, so that no column is all zeros.
struct Unit {
  const char* name;
  double bytes;
};

Unit unit_for(const PlanReport& report) {
  uint64_t most = 0;
  for (const PlanRow& row : report.rows) {
    most = row.device[ZERO_MEMORY_TOTAL] > most ? row.device[ZERO_MEMORY_TOTAL] : most;
  }
  return most >= 1000000000 ? Unit{"GB", 1e9} : Unit{"MB", 1e6};
}

std::string head(const PlanReport& report, const Unit& unit) {
  const ModelCounts& counts = report.model.counts;
  const PlanLimits& limits = report.limits;
  std::string text =
      formatted("%s: %.1f M parameters in %d tensors, %s; %d rank%s, %d a machine\n",
                base_name(report.model.file).c_str(), static_cast<double>(counts.parameters) / 1e6,
                counts.tensors, report.model.dtype.c_str(), limits.world,
                limits.world == 1 ? "" : "s", limits.ranks_per_host);
  if (limits.gpu_bytes > 0) {
    text += formatted("GPU %.2f GB, of which %.2f GB for others; ", gigabytes(limits.gpu_bytes),
                      gigabytes(limits.reserve_bytes));
  }
  if (limits.host_bytes > 0) {
    text += formatted("host %.2f GB a machine; ", gigabytes(limits.host_bytes));
  }
  if (limits.activation_bytes > 0) {
    text += formatted("%.1f MB of activations a sample%s",
                      static_cast<double>(limits.activation_bytes) / 1e6,
                      report.activation_words.c_str());
  }
  return text + formatted("\n%s a rank\n", unit.name);
}

std::string row_line(const PlanReport& report, const PlanRow& row, const Unit& unit) {
  const auto& bytes = row.device;
  const auto cell = [&unit](uint64_t amount) {
    return formatted(" %9.2f", static_cast<double>(amount) / unit.bytes);
  };
  std::string text = formatted("%c%c %d  %-16s", row.is_configs ? '>' : ' ', row.runs ? ' ' : '*',
                               row.stage, offload_name(row.offload));
  for (const zero_memory_use use :
       {ZERO_MEMORY_PARAMS, ZERO_MEMORY_GRADS, ZERO_MEMORY_MASTER, ZERO_MEMORY_OPTIMIZER,
        ZERO_MEMORY_GATHERED, ZERO_MEMORY_BUCKETS}) {
    text += cell(bytes[static_cast<size_t>(use)]);
  }
  text += cell(bytes[ZERO_MEMORY_STAGING] + bytes[ZERO_MEMORY_TABLES]);
  text += cell(bytes[ZERO_MEMORY_TOTAL]);
  text += cell(row.host[ZERO_MEMORY_TOTAL]);
  if (row.micro_batch >= 0) {
    text += formatted(" %8lld", static_cast<long long>(row.micro_batch));
  } else if (row.fits && report.limits.activation_bytes == 0) {
    text += "      yes";
  } else {
    text += row.binds.empty() ? "         " : "       no";
  }
  return text + "  " + row.binds + "\n";
}

std::string estimates_block(const PlanReport& report) {
  if (report.estimates.empty()) return "";
  std::string text =
      "\nDeepSpeed's estimates of model states, GiB, beside ours\n"
      "stage offload          zero.Init |  DeepSpeed: machine      GPU |  ours: machine      GPU\n";
  const char* said = "";
  std::string sentences;
  for (const Estimate& estimate : report.estimates) {
    const PlanRow* ours = nullptr;
    for (const PlanRow& row : report.rows) {
      if (row.stage == estimate.stage && row.offload == estimate.offload) ours = &row;
    }
    text +=
        formatted("    %d %-16s %9s | %19.2f %8.2f", estimate.stage, offload_name(estimate.offload),
                  estimate.stage == 3 ? (estimate.zero_init ? "yes" : "no") : "",
                  gibibytes(estimate.host_bytes), gibibytes(estimate.gpu_bytes));
    if (ours != nullptr) {
      const auto ranks = static_cast<uint64_t>(report.limits.ranks_per_host);
      text += formatted(" | %14.2f %8.2f", gibibytes(ours->host[ZERO_MEMORY_TOTAL] * ranks),
                        gibibytes(ours->device[ZERO_MEMORY_TOTAL]));
    }
    text += "\n";
    if (estimate.difference == said) continue;
    said = estimate.difference;
    sentences +=
        formatted("stage %d, offload %s: ", estimate.stage, offload_name(estimate.offload)) + said +
        ".\n";
  }
  return text + sentences;
}

std::string bytes_json(const std::array<uint64_t, kMemoryUses>& bytes) {
  std::string text = "{";
  for (size_t use = 0; use < kMemoryUses; ++use) {
    text += formatted("%s\"%s\": %llu", use == 0 ? "" : ", ", memory_use_word(use),
                      static_cast<unsigned long long>(bytes[use]));
  }
  return text + "}";
}

std::string member(const char* name, uint64_t value) {
  return formatted("\"%s\": %llu", name, static_cast<unsigned long long>(value));
}

std::string quoted(const std::string& text) {
  return Json::valueToQuotedString(text.c_str());
}

const char* truth(bool value) {
  return value ? "true" : "false";
}

std::string row_json(const PlanRow& row) {
  std::string text = formatted("{\"stage\": %d, \"offload\": ", row.stage) +
                     quoted(offload_name(row.offload)) + ", \"device\": " + bytes_json(row.device) +
                     ", \"host\": " + bytes_json(row.host) + ", " +
                     member("free_bytes", row.free_bytes) + ", \"fits\": " + truth(row.fits);
  if (row.micro_batch >= 0) {
    text += ", " + member("largest_micro_batch", static_cast<uint64_t>(row.micro_batch));
  }
  return text + ", \"binds\": " + quoted(row.binds) + ", \"of_config\": " + truth(row.is_configs) +
         ", \"runs_in_this_build\": " + truth(row.runs) + "}";
}

std::string estimate_json(const Estimate& estimate) {
  return formatted("{\"stage\": %d, \"offload\": ", estimate.stage) +
         quoted(offload_name(estimate.offload)) + ", \"zero_init\": " + truth(estimate.zero_init) +
         ", " + member("gpu_bytes", estimate.gpu_bytes) + ", " +
         member("machine_bytes", estimate.host_bytes) +
         ", \"difference\": " + quoted(estimate.difference) + "}";
}

template <typename Items, typename Write>
std::string list_json(const Items& items, Write write) {
  std::string text = "[";
  for (const auto& item : items) text += (text.size() > 1 ? ",\n  " : "\n  ") + write(item);
  return text + "]";
}

} // namespace

std::string plan_page(const PlanReport& report) {
  const Unit unit = unit_for(report);
  const bool on_host = report.limits.on_host;
  std::string text = head(report, unit);
  text += formatted(
      "  stage offload           params     grads    master optimizer  gathered"
      "   buckets     other  %8s      host    batch  what binds\n",
      on_host ? "total" : "GPU");
  bool any_later = false;
  for (const PlanRow& row : report.rows) {
    text += row_line(report, row, unit);
    any_later = any_later || !row.runs;
  }
  text += "> what the file asks for";
  if (any_later) {
    text += on_host
                ? ""
                : "; * does not run in this build yet (a GPU, or offload); the plan is the same";
  }
  return text + "\n" + estimates_block(report);
}

std::string plan_json(const PlanReport& report) {
  const ModelCounts& counts = report.model.counts;
  const PlanLimits& limits = report.limits;
  std::string text = "{\"model\": {\"file\": " + quoted(report.model.file) +
                     ", \"dtype\": " + quoted(report.model.dtype);
  const std::pair<const char*, uint64_t> sizes[] = {
      {"tensors", static_cast<uint64_t>(counts.tensors)},
      {"parameters", counts.parameters},
      {"trained", counts.trained},
      {"matrices", counts.matrices},
      {"largest_parameter", counts.largest},
      {"largest_layer", counts.largest_layer}};
  for (const auto& [name, value] : sizes) text += ", " + member(name, value);
  text += "},\n\"limits\": {";
  const std::pair<const char*, uint64_t> given[] = {
      {"world", static_cast<uint64_t>(limits.world)},
      {"ranks_per_host", static_cast<uint64_t>(limits.ranks_per_host)},
      {"gpu_memory", limits.gpu_bytes},
      {"host_memory", limits.host_bytes},
      {"reserve", limits.reserve_bytes},
      {"activation_bytes_per_sample", limits.activation_bytes}};
  for (const auto& [name, value] : given) text += member(name, value) + ", ";
  text += std::string("\"on_host\": ") + truth(limits.on_host) + "},\n\"rows\": ";
  text += list_json(report.rows, row_json);
  if (!report.estimates.empty()) {
    text += ",\n\"deepspeed\": " + list_json(report.estimates, estimate_json);
  }
  return text + "}\n";
}

} // namespace zero::cli
