// A folder for the files of one test program; gone with it.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

class ScratchFolder {
 public:
  ScratchFolder() {
    const char* base = std::getenv("TMPDIR");
    path_ = std::string(base != nullptr ? base : "/tmp") + "/zero-test-XXXXXX";
    if (mkdtemp(path_.data()) == nullptr) std::abort();
    owner_ = getpid();
  }
  ~ScratchFolder() {
    std::error_code ignored;
    if (getpid() == owner_) std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }
  // A name that no test has had before.
  std::string fresh() { return path_ + "/c" + std::to_string(count_++); }

 private:
  std::string path_;
  pid_t owner_ = 0;
  int count_ = 0;
};
