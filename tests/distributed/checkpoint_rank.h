// What the tests of checkpoints do with a rank: save, load, and be refused with the same words
// everywhere.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>

#include "precision_rank.h"
#include "scratch_folder.h"

namespace checkpoints {

using precision::Floats;
using precision::kBf16;
using precision::kFp16;
using precision::kFp32;
using precision::Rank;
using precision::same;
using precision::Setup;

inline ScratchFolder& scratch() {
  static ScratchFolder folder;
  return folder;
}

constexpr const char* kAdam = R"({"type": "Adam", "params": {"lr": 0.1}})";

inline zero_save_options save_options() {
  zero_save_options options;
  zero_save_options_init(&options, sizeof(options));
  return options;
}
inline zero_load_options load_options() {
  zero_load_options options;
  zero_load_options_init(&options, sizeof(options));
  return options;
}

inline void save(Rank& self, const std::string& path) {
  OK(zero_checkpoint_save(self.runtime, path.c_str(), nullptr));
}

inline zero_checkpoint* open(const std::string& path) {
  zero_checkpoint* checkpoint = nullptr;
  OK(zero_checkpoint_open(path.c_str(), &checkpoint));
  return checkpoint;
}

inline zero_status try_load(Rank& self, const std::string& path,
                            const zero_load_options* options = nullptr) {
  zero_checkpoint* checkpoint = open(path);
  const zero_status status = zero_checkpoint_load(self.runtime, checkpoint, options);
  zero_checkpoint_destroy(checkpoint);
  return status;
}
inline void load(Rank& self, const std::string& path, const zero_load_options* options = nullptr) {
  OK(try_load(self, path, options));
}

// This thread's last error is `status`, and its sentence has all these words.
inline void expect_error(zero_status got, zero_status status,
                         const std::vector<std::string>& words) {
  const std::string said = ::ranks::last_error();
  bool right = got == status;
  for (const std::string& word : words) right = right && said.find(word) != std::string::npos;
  if (!right) std::fprintf(stderr, "%s: %s\n", zero_status_name(got), said.c_str());
  EXPECT(right);
}

inline std::string text_of(const std::string& path) {
  zero_checkpoint* checkpoint = open(path);
  uint64_t length = 0;
  zero_checkpoint_text(checkpoint, nullptr, 0, &length);
  std::string text(length + 1, '\0');
  OK(zero_checkpoint_text(checkpoint, text.data(), length + 1, &length));
  text.resize(length);
  zero_checkpoint_destroy(checkpoint);
  return text;
}

inline int64_t steps_of(const std::string& path, int64_t index) {
  zero_checkpoint* checkpoint = open(path);
  int64_t steps = -1;
  OK(zero_checkpoint_param_steps(checkpoint, index, &steps));
  zero_checkpoint_destroy(checkpoint);
  return steps;
}

// Values that are each their own.
inline Floats numbered(size_t count, float first) {
  Floats values(count);
  for (size_t i = 0; i < count; ++i) values[i] = first + static_cast<float>(i);
  return values;
}

inline void set_state(Rank& self, zero_param_id param, int32_t index, const Floats& values) {
  OK(zero_param_set(self.runtime, param, ZERO_PART_STATE, index, values.data(), values.size() * 4));
}

} // namespace checkpoints
