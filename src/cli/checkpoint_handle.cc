// SPDX-License-Identifier: BSD-3-Clause
#include "cli/checkpoint_handle.h"

#include <unistd.h>

#include <cstdio>

#include "cli/last_error.h"

namespace zero::cli {

int complain(const char* word) {
  std::fprintf(stderr, "zero checkpoint %s: %s\n", word, last_error_text().c_str());
  return kFailed;
}

CheckpointHandle::CheckpointHandle(const std::string& path) {
  zero_checkpoint* handle = nullptr;
  if (zero_checkpoint_open(path.c_str(), &handle) == ZERO_OK) handle_.reset(handle);
}

zero_checkpoint_info CheckpointHandle::info() const {
  zero_checkpoint_info info;
  zero_checkpoint_info_init(&info, sizeof info);
  zero_checkpoint_describe(get(), &info);
  return info;
}

CheckpointParam CheckpointHandle::param(int64_t index) const {
  zero_param_info info;
  zero_param_info_init(&info, sizeof info);
  zero_checkpoint_param_at(get(), index, &info);
  CheckpointParam param;
  param.name = info.name;
  param.shape.assign(info.shape, info.shape + info.dimensions);
  param.dtype = info.dtype;
  param.role = info.role;
  param.group = info.group;
  param.tied_to = info.tied_to;
  param.elements = info.elements;
  zero_checkpoint_param_steps(get(), index, &param.steps);
  return param;
}

std::string CheckpointHandle::text() const {
  uint64_t length = 0;
  zero_checkpoint_text(get(), nullptr, 0, &length);
  std::string text(length + 1, '\0');
  zero_checkpoint_text(get(), text.data(), text.size(), &length);
  text.resize(length);
  return text;
}

std::vector<std::string> CheckpointHandle::lines(const std::string& word) const {
  std::vector<std::string> found;
  const std::string all = text();
  for (size_t begin = 0; begin < all.size();) {
    const size_t end = all.find('\n', begin);
    const std::string line = all.substr(begin, end - begin);
    if (line.compare(0, word.size() + 1, word + " ") == 0) found.push_back(line);
    if (end == std::string::npos) break;
    begin = end + 1;
  }
  return found;
}

ProgressLine::ProgressLine(const char* word)
    : word_(word), on_terminal_(::isatty(STDERR_FILENO) == 1) {
  zero_progress_init(&progress_, sizeof progress_);
  if (!on_terminal_) return; // nobody to tell
  progress_.user_data = this;
  progress_.report = [](void* self, uint64_t done, uint64_t total) -> zero_status {
    static_cast<ProgressLine*>(self)->show(done, total);
    return ZERO_OK;
  };
}

ProgressLine::~ProgressLine() {
  if (shown_) std::fputs("\r\033[K", stderr);
}

void ProgressLine::show(uint64_t done, uint64_t total) {
  const auto now = std::chrono::steady_clock::now();
  if (!on_terminal_ || now < next_) return;
  next_ = now + std::chrono::milliseconds(200);
  shown_ = true;
  const double share =
      total == 0 ? 100 : 100.0 * static_cast<double>(done) / static_cast<double>(total);
  std::fprintf(stderr, "\r\033[K%s %5.1f %%  %.1f of %.1f MB", word_, share,
               static_cast<double>(done) * 1e-6, static_cast<double>(total) * 1e-6);
  std::fflush(stderr);
}

const char* role_text(zero_param_role role) {
  return role == ZERO_PARAM_TRAINED ? "trained" : role == ZERO_PARAM_FROZEN ? "frozen" : "buffer";
}

const char* dtype_text(zero_dtype dtype) {
  static const char* const names[] = {"?",    "fp32",  "fp16",  "bf16",
                                      "fp64", "int64", "int32", "uint8"};
  return dtype >= 1 && dtype <= 7 ? names[dtype] : names[0];
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t extent : shape) {
    text += (text.size() == 1 ? "" : ", ") + std::to_string(extent);
  }
  return text + "]";
}

} // namespace zero::cli
