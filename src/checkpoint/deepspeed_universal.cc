// A universal checkpoint (ds_to_universal.py): one folder a parameter, each part a file of its own.
// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/deepspeed_build.h"

namespace zero::checkpoint {
namespace {

constexpr const char* kStates[] = {"exp_avg", "exp_avg_sq", "momentum_buffer", "sum"};
constexpr const char* kEnding = ".pt";

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

class Universal {
 public:
  Universal(DeepSpeedBuild* build, const std::string& folder)
      : build_(*build), state_(build->state), folder_(folder) {}

  void read() {
    for (DeepSpeedParameter& parameter : state_.parameters) {
      if (parameter.role == ZERO_PARAM_TRAINED && parameter.tied_to < 0) read_parameter(&parameter);
    }
    const DeepSpeedArchive& archive = build_.optimizer(0);
    build_deepspeed_groups(&build_, archive,
                           archive.document().find(archive.root(), "param_groups"));
  }

 private:
  void read_parameter(DeepSpeedParameter* parameter) {
    const std::string folder = join_path(folder_, parameter->name);
    if (path_info(folder).kind != PathKind::kFolder) {
      fail(ZERO_ERR_FILE_INCOMPLETE,
           "folder \"%s\" does not exist, expected the files of param \"%s\"", folder.c_str(),
           parameter->name.c_str());
    }
    const std::vector<std::string> files = list_folder(folder);
    check_names(folder, files);
    parameter->master = {piece(*parameter, folder, "fp32")};
    for (const std::string& name : state_.state_names) {
      parameter->states.push_back({piece(*parameter, folder, name)});
    }
    parameter->step = state_.state_names.empty() ? 0 : step_of(folder);
  }

  // The first parameter says which files there are; all have the same.
  void check_names(const std::string& folder, const std::vector<std::string>& files) {
    if (!names_known_) {
      for (const char* name : kStates) {
        if (has(files, std::string(name) + kEnding)) state_.state_names.emplace_back(name);
      }
      has_step_ = has(files, "step.pt");
      if (!has_step_) step_ = step_of_all();
      names_known_ = true;
    }
    for (const std::string& file : files) {
      const size_t ending = file.size() < 3 ? 0 : file.size() - 3;
      const std::string name = file.substr(0, ending);
      if (file.substr(ending) != kEnding || name == "fp32" || name == "step") continue;
      if (has(state_.state_names, name)) continue;
      fail(ZERO_ERR_UNSUPPORTED,
           "file \"%s\": a state \"%s\", expected exp_avg, exp_avg_sq, momentum_buffer or sum, the "
           "same for all parameters",
           join_path(folder, file).c_str(), name.c_str());
    }
  }

  // Stays among the archives, but not open: there are several for each parameter.
  const DeepSpeedArchive& open(const std::string& path) {
    if (path_info(path).kind != PathKind::kFile) {
      fail(ZERO_ERR_FILE_INCOMPLETE, "file \"%s\" is missing", path.c_str());
    }
    build_.archives.push_back(std::make_unique<DeepSpeedArchive>(path, Opening::kEachTime));
    return *build_.archives.back();
  }

  // The whole tensor: in a dict beside how it is cut (stages 1 and 2), or as it is (stage 3).
  DeepSpeedPiece piece(const DeepSpeedParameter& parameter, const std::string& folder,
                       const std::string& part) {
    const DeepSpeedArchive& archive = open(join_path(folder, part + kEnding));
    const PickleDocument& document = archive.document();
    const PickleRef tensor = document.is(archive.root(), PickleKind::kDict)
                                 ? document.find(archive.root(), "param")
                                 : archive.root();
    if (!document.is(tensor, PickleKind::kTensor)) {
      fail(ZERO_ERR_FILE_FORMAT, "file \"%s\": expected a tensor, or a dict with one as \"param\"",
           archive.path().c_str());
    }
    const TorchTensor& found = document.tensor(tensor);
    const bool flat = found.shape.size() == 1 && found.elements() == parameter.elements;
    if (found.shape != parameter.shape && !flat) {
      fail(ZERO_ERR_FILE_FORMAT,
           "file \"%s\": a tensor of %zu axes and %llu elements, but param \"%s\" has %zu and %llu",
           archive.path().c_str(), found.shape.size(),
           static_cast<unsigned long long>(found.elements()), parameter.name.c_str(),
           parameter.shape.size(), static_cast<unsigned long long>(parameter.elements));
    }
    return deepspeed_piece(build_, static_cast<uint32_t>(build_.archives.size() - 1), tensor,
                           parameter.name + "'s " + part, 0, 0, parameter.elements);
  }

  // Its own file; without one (stage 3) that of all.
  int64_t step_of(const std::string& folder) {
    if (!has_step_) return step_;
    const DeepSpeedArchive& archive = open(join_path(folder, "step.pt"));
    return count_of(archive, archive.root());
  }

  // What rank 0's sub-groups say in optimizer_state.pt, which are of the same step; else as many
  // as the run had updates.
  int64_t step_of_all() {
    const DeepSpeedArchive& archive = build_.optimizer(0);
    const PickleDocument& document = archive.document();
    const PickleRef states =
        document.find(document.find(archive.root(), "optimizer_state_dict"), "state");
    if (document.is(states, PickleKind::kDict)) {
      const std::vector<PickleRef>& items = document.items(states);
      for (size_t i = 1; i < items.size(); i += 2) {
        const PickleRef step = document.find(items[i], "step");
        if (step != kNoPickle) return count_of(archive, step);
      }
    }
    return state_.global_steps - state_.skipped_steps;
  }

  static int64_t count_of(const DeepSpeedArchive& archive, PickleRef node) {
    const double value = read_deepspeed_number(archive, node, "the optimizer's step");
    if (value >= 0 && value < 9e15 && value == std::floor(value)) {
      return static_cast<int64_t>(value);
    }
    fail(ZERO_ERR_FILE_FORMAT, "file \"%s\": the optimizer's step is %g, expected a count",
         archive.path().c_str(), value);
  }

  DeepSpeedBuild& build_;
  DeepSpeedState& state_;
  const std::string folder_;
  bool names_known_ = false;
  bool has_step_ = false;
  int64_t step_ = 0; // of all parameters, where they have no files of their own
};

} // namespace

void build_deepspeed_universal(DeepSpeedBuild* build, const std::string& folder) {
  Universal(build, folder).read();
}

} // namespace zero::checkpoint
