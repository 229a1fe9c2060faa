// A bar a row: uses from left to right, then what is free for activations; a line where the memory
// ends; a thin bar below for the host.
// SPDX-License-Identifier: BSD-3-Clause
#include "cli/plan_chart.h"

#include <algorithm>
#include <cstdio>

namespace zero::cli {
namespace {

constexpr double kWidth = 860, kLeft = 190, kRight = 110, kTop = 78, kStep = 44, kBar = 20;

// Told apart also by people who see colours differently, and on black as well as on white.
constexpr const char* kColours[kMemoryUses] = {
    "", "#4477aa", "#66ccee", "#228833", "#ccbb44", "#ee6677", "#aa3377", "#888888", "#bbbbbb"};

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '&') {
      safe += "&amp;";
    } else if (c == '<') {
      safe += "&lt;";
    } else if (c == '>') {
      safe += "&gt;";
    } else if (static_cast<unsigned char>(c) >= 32) {
      safe += c;
    }
  }
  return safe;
}

class Chart {
 public:
  explicit Chart(const PlanReport& report) : report_(report) {
    for (const PlanRow& row : report.rows) {
      most_ = std::max({most_, row.device[ZERO_MEMORY_TOTAL], row.host[ZERO_MEMORY_TOTAL]});
    }
    // Of a memory much larger than anything in it only the beginning is drawn.
    const uint64_t limit = memory();
    if (limit > 0 && limit < 3 * most_) most_ = std::max(most_, limit);
  }

  std::string draw() const;

 private:
  uint64_t memory() const {
    const PlanLimits& limits = report_.limits;
    return limits.on_host ? limits.host_bytes / static_cast<uint64_t>(limits.ranks_per_host)
                          : limits.gpu_bytes;
  }
  double length(uint64_t bytes) const {
    const double span = kWidth - kLeft - kRight;
    return span * static_cast<double>(bytes) / static_cast<double>(std::max<uint64_t>(most_, 1));
  }
  std::string bar(const std::array<uint64_t, kMemoryUses>& bytes, double y, double height) const;
  std::string row(const PlanRow& row, double y) const;
  std::string legend() const;

  const PlanReport& report_;
  uint64_t most_ = 0;
};

std::string Chart::bar(const std::array<uint64_t, kMemoryUses>& bytes, double y,
                       double height) const {
  std::string text;
  double x = kLeft;
  for (size_t use = ZERO_MEMORY_PARAMS; use < kMemoryUses; ++use) {
    const double width = length(bytes[use]);
    if (width <= 0) continue;
    text += formatted(
        "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"%s\"><title>%s %.3f "
        "GB</title></rect>\n",
        x, y, width, height, kColours[use], memory_use_word(use),
        static_cast<double>(bytes[use]) / 1e9);
    x += width;
  }
  return text;
}

std::string Chart::row(const PlanRow& row, double y) const {
  std::string name = formatted("stage %d", row.stage);
  if (row.offload != Offload::kNone) name += std::string(", ") + offload_name(row.offload);
  std::string text =
      formatted("<text x=\"%g\" y=\"%g\" text-anchor=\"end\"%s>%s</text>\n", kLeft - 8, y + 15,
                row.is_configs ? " font-weight=\"bold\"" : "", name.c_str());
  text += bar(row.device, y, kBar);
  if (!report_.limits.on_host) text += bar(row.host, y + kBar + 2, 6);
  std::string words =
      formatted("%.2f GB", static_cast<double>(row.device[ZERO_MEMORY_TOTAL]) / 1e9);
  if (row.micro_batch >= 0) {
    words += formatted(", batch %lld", static_cast<long long>(row.micro_batch));
  }
  const double end = std::max(length(row.device[ZERO_MEMORY_TOTAL]), 1.0);
  return text +
         formatted("<text x=\"%.2f\" y=\"%g\">%s</text>\n", kLeft + end + 6, y + 15, words.c_str());
}

std::string Chart::legend() const {
  std::string text;
  double x = kLeft;
  for (size_t use = ZERO_MEMORY_PARAMS; use < kMemoryUses; ++use) {
    bool used = false;
    for (const PlanRow& row : report_.rows) used = used || row.device[use] + row.host[use] > 0;
    if (!used) continue;
    text += formatted(
        "<rect x=\"%g\" y=\"40\" width=\"12\" height=\"12\" fill=\"%s\"/>"
        "<text x=\"%g\" y=\"51\">%s</text>\n",
        x, kColours[use], x + 16, memory_use_word(use));
    x += 84;
  }
  return text;
}

std::string Chart::draw() const {
  const double rows = static_cast<double>(report_.rows.size());
  const double height = kTop + kStep * rows + 24;
  std::string svg = formatted(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" font-family=\"sans-serif\" "
      "font-size=\"13\">\n",
      kWidth, height);
  svg +=
      "<style>text{fill:#222}.page{fill:#fff}.edge{stroke:#222}"
      "@media(prefers-color-scheme:dark){text{fill:#ddd}.page{fill:#16181c}.edge{stroke:#ddd}}"
      "</style>\n<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n";
  svg += "<text x=\"12\" y=\"22\" font-size=\"15\">" +
         escaped(report_.model.file.substr(report_.model.file.find_last_of('/') + 1)) +
         formatted(", %s, %d ranks: bytes of a rank%s</text>\n", report_.model.dtype.c_str(),
                   report_.limits.world, report_.limits.on_host ? "" : " (thick: GPU, thin: host)");
  svg += legend();
  double y = kTop;
  for (const PlanRow& one : report_.rows) {
    svg += row(one, y);
    y += kStep;
  }
  const uint64_t limit = memory();
  if (limit > 0 && limit <= most_) {
    const double x = kLeft + length(limit);
    svg += formatted(
        "<path class=\"edge\" stroke-dasharray=\"4 3\" d=\"M%.2f %gV%g\"/><text x=\"%.2f\" "
        "y=\"%g\" "
        "text-anchor=\"middle\">%.2f GB there are</text>\n",
        x, kTop - 8, y - 8, x, y + 8, static_cast<double>(limit) / 1e9);
  }
  return svg + "</svg>\n";
}

} // namespace

std::string plan_svg(const PlanReport& report) {
  return Chart(report).draw();
}

} // namespace zero::cli
