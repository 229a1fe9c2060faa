// Samples zero_schedule_at; an SVG line, or bars of the terminal's characters.
// SPDX-License-Identifier: BSD-3-Clause
#include "cli/check_plot.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "cli/check_config.h"

namespace zero::cli {
namespace {

struct Sample {
  int64_t update;
  double lr;
};

std::vector<Sample> sample(const zero_config* config, int64_t updates, int64_t points,
                           std::string* error) {
  std::vector<Sample> samples;
  points = std::min(points, updates);
  for (int64_t i = 0; i < points; ++i) {
    const double share = points > 1 ? static_cast<double>(i) / static_cast<double>(points - 1) : 0;
    const int64_t update = 1 + static_cast<int64_t>(share * static_cast<double>(updates - 1));
    double lr = 0;
    if (zero_schedule_at(config, update, &lr, nullptr) != ZERO_OK) {
      uint64_t length = 0;
      zero_last_error_text(nullptr, 0, &length);
      error->assign(length + 1, '\0');
      zero_last_error_text(error->data(), error->size(), &length);
      error->resize(length);
      return {};
    }
    samples.push_back({update, lr});
  }
  return samples;
}

double highest(const std::vector<Sample>& samples) {
  double most = 0;
  for (const Sample& one : samples) most = std::max(most, one.lr);
  return most;
}

int64_t integer(const zero_config* config, const char* key) {
  return std::strtoll(config_value(config, key).c_str(), nullptr, 10);
}

template <typename... Values>
std::string text_of(const char* pattern, Values... values) {
  char text[256];
  std::snprintf(text, sizeof text, pattern, values...);
  return text;
}

} // namespace

int64_t plotted_updates(const zero_config* config) {
  const std::string type = config_value(config, "scheduler.type");
  if (type == "\"OneCycle\"") {
    const int64_t cycle = integer(config, "scheduler.params.cycle_first_step_size") +
                          integer(config, "scheduler.params.cycle_second_step_size");
    return cycle + cycle / 2 + 2;
  }
  if (type == "\"LRRangeTest\"") {
    return 4 * integer(config, "scheduler.params.lr_range_test_step_size") + 1;
  }
  const int64_t total = integer(config, "scheduler.params.total_num_steps");
  if (total > 0) return total + 2;
  if (type == "\"WarmupLR\"") return 2 * integer(config, "scheduler.params.warmup_num_steps") + 2;
  return 100;
}

std::string plot_svg(const zero_config* config, int64_t updates, std::string* error) {
  constexpr double kWidth = 800, kHeight = 320, kLeft = 90, kTop = 30, kBottom = 50;
  const std::vector<Sample> samples = sample(config, updates, 2000, error);
  if (samples.empty()) return "";
  const double most = std::max(highest(samples), 1e-300);
  const double span = std::max<double>(1, static_cast<double>(updates - 1));
  std::string points;
  for (const Sample& one : samples) {
    const double x = kLeft + (kWidth - kLeft - 20) * static_cast<double>(one.update - 1) / span;
    const double y = kTop + (kHeight - kTop - kBottom) * (1 - one.lr / most);
    points += text_of("%.2f,%.2f ", x, y);
  }
  const double floor = kHeight - kBottom;
  std::string svg = text_of(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" font-family=\"sans-serif\" "
      "font-size=\"13\">\n",
      kWidth, kHeight);
  svg += "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  svg += text_of("<path d=\"M%g %gV%gH%g\" fill=\"none\" stroke=\"#888\"/>\n", kLeft, kTop, floor,
                 kWidth - 20);
  svg +=
      "<polyline fill=\"none\" stroke=\"#1f5fa8\" stroke-width=\"2\" points=\"" + points + "\"/>\n";
  svg += text_of("<text x=\"%g\" y=\"%g\" text-anchor=\"end\">%.4g</text>\n", kLeft - 8, kTop + 5,
                 most);
  svg += text_of("<text x=\"%g\" y=\"%g\" text-anchor=\"end\">0</text>\n", kLeft - 8, floor + 4);
  svg += text_of("<text x=\"%g\" y=\"%g\">1</text>\n", kLeft, floor + 20);
  svg += text_of("<text x=\"%g\" y=\"%g\" text-anchor=\"end\">%lld</text>\n", kWidth - 20,
                 floor + 20, static_cast<long long>(updates));
  svg += text_of("<text x=\"%g\" y=\"%g\" text-anchor=\"middle\">update</text>\n", kWidth / 2,
                 floor + 38);
  return svg + text_of("<text x=\"%g\" y=\"18\">learning rate</text>\n</svg>\n", kLeft);
}

std::string plot_text(const zero_config* config, int64_t updates, std::string* error) {
  constexpr int kBar = 50;
  const std::vector<Sample> samples = sample(config, updates, 25, error);
  if (samples.empty()) return "";
  const double most = std::max(highest(samples), 1e-300);
  std::string text = "\nlearning rate by update\n";
  for (const Sample& one : samples) {
    const int length = static_cast<int>(one.lr / most * kBar + 0.5);
    text += text_of("  %10lld  %-12.6g ", static_cast<long long>(one.update), one.lr) +
            std::string(static_cast<size_t>(length), '#') + "\n";
  }
  return text;
}

} // namespace zero::cli
