// Which files a DeepSpeed checkpoint consists of, in the order of their ranks' numbers.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

namespace zero::checkpoint {

struct DeepSpeedFiles {
  std::string folder; // of the tag
  std::vector<std::string> models; // one, or one a rank (stage 3)
  std::vector<std::string> optimizers; // one a rank; none at stage 0; universal: the one of all
  std::string universal; // the folder of the parameters' folders; empty: not a universal one
};

// folder: the one that holds `latest` (or, without one, `latest_universal`), or the tag's own.
// Throws NOT_FOUND naming the file looked for, FILE_INCOMPLETE naming a rank whose file is missing
// or there twice, UNSUPPORTED for model parallel files and experts.
DeepSpeedFiles find_deepspeed_files(const std::string& folder);

} // namespace zero::checkpoint
