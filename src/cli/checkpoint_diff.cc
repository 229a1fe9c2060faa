// SPDX-License-Identifier: BSD-3-Clause
#include "cli/checkpoint_diff.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>

namespace zero::cli {
namespace {

constexpr uint64_t kPieceElements = uint64_t{1} << 20;

uint64_t element_bytes(zero_dtype dtype) {
  static const uint64_t sizes[] = {0, 4, 2, 2, 8, 8, 4, 1};
  return dtype >= 1 && dtype <= 7 ? sizes[dtype] : 0;
}

struct Part {
  zero_part part;
  int32_t index;
  const char* name;
};

class Comparison {
 public:
  Comparison(const CheckpointHandle& one, const CheckpointHandle& other, ProgressLine* progress,
             std::vector<CheckpointDifference>* differences)
      : one_(one), other_(other), progress_(progress), differences_(*differences) {}

  bool run() {
    compare_run();
    compare_lines("group");
    if (!compare_blobs()) return false;
    const std::map<std::string, CheckpointParam> mine = params(one_);
    const std::map<std::string, CheckpointParam> theirs = params(other_);
    for (const auto& [name, param] : theirs) {
      if (mine.count(name) == 0) add(name, "is in the second alone");
    }
    for (const auto& [name, param] : mine) {
      if (param.tied_to < 0) total_ += param.elements;
    }
    for (const auto& [name, param] : mine) {
      const auto found = theirs.find(name);
      if (found == theirs.end()) {
        add(name, "is in the first alone");
      } else if (!compare_param(param, found->second)) {
        return false;
      }
    }
    return true;
  }

 private:
  void add(const std::string& name, const std::string& how) {
    differences_.push_back({"param \"" + name + "\"", how});
  }
  template <typename Number>
  void compare(const char* what, Number mine, Number theirs) {
    if (mine == theirs) return;
    differences_.push_back({what, std::to_string(mine) + " and " + std::to_string(theirs)});
  }

  // Who wrote them - ranks, stage - is no part of the state.
  void compare_run() {
    const zero_checkpoint_info mine = one_.info();
    const zero_checkpoint_info theirs = other_.info();
    compare("step", mine.step, theirs.step);
    compare("skipped_total", mine.skipped_total, theirs.skipped_total);
    compare("loss_scale", mine.loss_scale, theirs.loss_scale);
    compare("weights_only", mine.weights_only, theirs.weights_only);
    compare("state_count", mine.state_count, theirs.state_count);
    states_ = std::min(mine.state_count, theirs.state_count);
    weights_only_ = mine.weights_only != 0 || theirs.weights_only != 0;
  }

  void compare_lines(const char* word) {
    const std::vector<std::string> mine = one_.lines(word);
    const std::vector<std::string> theirs = other_.lines(word);
    for (size_t i = 0; i < std::max(mine.size(), theirs.size()); ++i) {
      const std::string a = i < mine.size() ? mine[i] : "nothing";
      const std::string b = i < theirs.size() ? theirs[i] : "nothing";
      if (a != b) differences_.push_back({word, a + " and " + b});
    }
  }

  // blob "KEY" of rank N, M bytes
  struct Blob {
    std::string key;
    int32_t rank;
    bool operator<(const Blob& other) const {
      return key != other.key ? key < other.key : rank < other.rank;
    }
  };
  static std::vector<Blob> blobs(const CheckpointHandle& handle) {
    std::vector<Blob> list;
    for (const std::string& line : handle.lines("blob")) {
      const size_t end = line.rfind("\" of rank ");
      if (end == std::string::npos || end < 6) continue;
      list.push_back({line.substr(6, end - 6), std::atoi(line.c_str() + end + 10)});
    }
    std::sort(list.begin(), list.end());
    return list;
  }
  static bool read_blob(const CheckpointHandle& handle, const Blob& blob, std::string* bytes) {
    uint64_t count = 0;
    const zero_status status =
        zero_checkpoint_get(handle.get(), blob.rank, blob.key.c_str(), nullptr, 0, &count);
    if (status != ZERO_OK && status != ZERO_ERR_BUFFER_TOO_SMALL) return false;
    bytes->resize(count);
    return count == 0 || zero_checkpoint_get(handle.get(), blob.rank, blob.key.c_str(),
                                             bytes->data(), count, &count) == ZERO_OK;
  }
  bool compare_blobs() {
    const std::vector<Blob> mine = blobs(one_);
    const std::vector<Blob> theirs = blobs(other_);
    const auto what = [](const Blob& blob) {
      return "blob \"" + blob.key + "\" of rank " + std::to_string(blob.rank);
    };
    for (const Blob& blob : theirs) {
      if (!std::binary_search(mine.begin(), mine.end(), blob)) {
        differences_.push_back({what(blob), "is in the second alone"});
      }
    }
    for (const Blob& blob : mine) {
      if (!std::binary_search(theirs.begin(), theirs.end(), blob)) {
        differences_.push_back({what(blob), "is in the first alone"});
        continue;
      }
      std::string a, b;
      if (!read_blob(one_, blob, &a) || !read_blob(other_, blob, &b)) return false;
      if (a != b) differences_.push_back({what(blob), "differs"});
    }
    return true;
  }

  static std::map<std::string, CheckpointParam> params(const CheckpointHandle& handle) {
    std::map<std::string, CheckpointParam> all;
    const int64_t count = handle.info().param_count;
    for (int64_t i = 0; i < count; ++i) {
      CheckpointParam param = handle.param(i);
      all.emplace(param.name, std::move(param));
    }
    return all;
  }

  bool compare_param(const CheckpointParam& mine, const CheckpointParam& theirs) {
    if (mine.shape != theirs.shape) {
      add(mine.name, "has shape " + shape_text(mine.shape) + " and " + shape_text(theirs.shape));
      return true; // elements do not correspond
    }
    if (mine.role != theirs.role) {
      add(mine.name, std::string("is ") + role_text(mine.role) + " and " + role_text(theirs.role));
    }
    if (mine.dtype != theirs.dtype) {
      add(mine.name,
          std::string("is ") + dtype_text(mine.dtype) + " and " + dtype_text(theirs.dtype));
    }
    if ((mine.tied_to >= 0) != (theirs.tied_to >= 0) ||
        (mine.tied_to >= 0 && one_.param(mine.tied_to).name != other_.param(theirs.tied_to).name)) {
      add(mine.name, "is tied otherwise");
    }
    if (mine.steps != theirs.steps) {
      add(mine.name, "has had " + std::to_string(mine.steps) + " and " +
                         std::to_string(theirs.steps) + " updates");
    }
    if (mine.tied_to >= 0 || theirs.tied_to >= 0) return true;
    if (mine.role != theirs.role) return true;
    std::vector<Part> parts;
    const bool has_state = mine.role == ZERO_PARAM_TRAINED && !weights_only_;
    if (!has_state) {
      if (mine.dtype == theirs.dtype) parts.push_back({ZERO_PART_VALUE, 0, "value"});
    } else {
      parts.push_back({ZERO_PART_MASTER, 0, "master"});
      for (int32_t s = 0; s < states_; ++s) parts.push_back({ZERO_PART_STATE, s, "state"});
    }
    for (const Part& part : parts) {
      if (!compare_part(mine, part)) return false;
    }
    done_ += mine.elements;
    return true;
  }

  bool compare_part(const CheckpointParam& param, const Part& part) {
    const uint64_t size = part.part == ZERO_PART_VALUE ? element_bytes(param.dtype) : 4;
    std::vector<char> a(std::min(kPieceElements, param.elements) * size), b(a.size());
    uint64_t differing = 0;
    uint64_t first = 0;
    for (uint64_t at = 0; at < param.elements; at += kPieceElements) {
      const uint64_t count = std::min(kPieceElements, param.elements - at);
      const auto read = [&](const CheckpointHandle& handle, char* out) {
        return zero_checkpoint_read(handle.get(), param.name.c_str(), part.part, part.index, at,
                                    count, out, count * size) == ZERO_OK;
      };
      if (!read(one_, a.data()) || !read(other_, b.data())) return false;
      for (uint64_t i = 0; i < count; ++i) {
        if (std::memcmp(a.data() + i * size, b.data() + i * size, size) == 0) continue;
        if (differing++ == 0) first = at + i;
      }
      progress_->show(done_ + at + count, total_);
    }
    if (differing == 0) return true;
    std::string name = part.name;
    if (part.part == ZERO_PART_STATE) name += " " + std::to_string(part.index);
    add(param.name, name + ": " + std::to_string(differing) + " of " +
                        std::to_string(param.elements) + " elements differ, the first is " +
                        std::to_string(first));
    return true;
  }

  const CheckpointHandle& one_;
  const CheckpointHandle& other_;
  ProgressLine* progress_;
  std::vector<CheckpointDifference>& differences_;
  int32_t states_ = 0;
  bool weights_only_ = false;
  uint64_t done_ = 0;
  uint64_t total_ = 0;
};

} // namespace

bool compare_checkpoints(const CheckpointHandle& one, const CheckpointHandle& other,
                         ProgressLine* progress, std::vector<CheckpointDifference>* differences) {
  return Comparison(one, other, progress, differences).run();
}

} // namespace zero::cli
