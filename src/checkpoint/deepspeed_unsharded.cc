// Stage 0: whole tensors in the module, and torch's own optimizer state, which numbers parameters
// and does not name them.
// SPDX-License-Identifier: BSD-3-Clause
#include <map>

#include "base/error.h"
#include "checkpoint/deepspeed_build.h"

namespace zero::checkpoint {
namespace {

constexpr size_t kMostStates = 2000000;

// One parameter as the optimizer knows it.
struct Slot {
  PickleRef state = kNoPickle;
  bool has_shape = false; // false: it never had a gradient, so that nothing is known of it
  std::vector<int64_t> shape;
};

// A group holds its parameters in the module's order, so the groups are sequences of shapes that
// interleave to the module's trained parameters.  There may be more than one way to read them so:
// then it is an error, for moments would come to the wrong place.
class Matching {
 public:
  Matching(const std::vector<const DeepSpeedParameter*>& candidates,
           const std::vector<std::vector<Slot>>& groups, const std::string& file)
      : candidates_(candidates), groups_(groups), file_(file) {}

  // The group of each candidate; -1: frozen.
  std::vector<int32_t> solve() {
    layers_.resize(candidates_.size() + 1);
    layers_[0][Position(groups_.size(), 0)] = 1;
    size_t states = 1;
    for (size_t c = 0; c < candidates_.size(); ++c) {
      for (const auto& layer : layers_[c]) {
        const int ways = layer.second;
        step(c, layer.first, [&](const Position& next, int32_t) {
          int& count = layers_[c + 1][next];
          count = count + ways > 2 ? 2 : count + ways;
        });
      }
      states += layers_[c + 1].size();
      if (states > kMostStates) ambiguous();
    }
    Position end;
    for (const std::vector<Slot>& group : groups_) end.push_back(group.size());
    const auto found = layers_.back().find(end);
    if (found == layers_.back().end()) {
      fail(ZERO_ERR_FILE_FORMAT,
           "file \"%s\": the optimizer's parameters do not have the shapes of the module's",
           file_.c_str());
    }
    if (found->second != 1) ambiguous();
    return walk_back(end);
  }

 private:
  using Position = std::vector<size_t>; // how many of each group are matched

  [[noreturn]] void ambiguous() const {
    fail(ZERO_ERR_UNSUPPORTED,
         "file \"%s\": a stage 0 checkpoint does not name the optimizer's parameters, and here "
         "their shapes fit the module's in more than one way; expected it saved at stage 1 to 3",
         file_.c_str());
  }
  template <typename Visit>
  void step(size_t candidate, const Position& position, Visit visit) const {
    visit(position, -1);
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (position[g] == groups_[g].size()) continue;
      const Slot& slot = groups_[g][position[g]];
      if (slot.has_shape && slot.shape != candidates_[candidate]->shape) continue;
      Position next = position;
      ++next[g];
      visit(next, static_cast<int32_t>(g));
    }
  }
  std::vector<int32_t> walk_back(Position at) const {
    std::vector<int32_t> chosen(candidates_.size(), -1);
    for (size_t c = candidates_.size(); c-- > 0;) {
      if (layers_[c].count(at) != 0) continue; // frozen; nothing else can lead here
      for (size_t g = 0; g < groups_.size(); ++g) {
        if (at[g] == 0) continue;
        Position before = at;
        --before[g];
        const Slot& slot = groups_[g][before[g]];
        if (slot.has_shape && slot.shape != candidates_[c]->shape) continue;
        if (layers_[c].count(before) == 0) continue;
        chosen[c] = static_cast<int32_t>(g);
        at = before;
        break;
      }
    }
    return chosen;
  }

  const std::vector<const DeepSpeedParameter*>& candidates_;
  const std::vector<std::vector<Slot>>& groups_;
  const std::string& file_;
  std::vector<std::map<Position, int>> layers_;
};

} // namespace

void build_deepspeed_unsharded(DeepSpeedBuild* build) {
  DeepSpeedState& state = build->state;
  const DeepSpeedArchive& archive = build->model(0);
  const PickleDocument& document = archive.document();
  const PickleRef optimizer = document.find(archive.root(), "optimizer");
  const PickleRef param_groups = document.find(optimizer, "param_groups");
  const PickleRef states = document.find(optimizer, "state");
  if (!document.is(param_groups, PickleKind::kList) || !document.is(states, PickleKind::kDict)) {
    fail(ZERO_ERR_UNSUPPORTED,
         "file \"%s\": expected torch's own optimizer state (\"state\" and \"param_groups\"); the "
         "fp16 and bf16 wrappers of stage 0 are not read, expected the checkpoint saved at stage 1 "
         "to 3",
         archive.path().c_str());
  }
  std::map<int64_t, PickleRef> by_number;
  const std::vector<PickleRef>& items = document.items(states);
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    if (document.is(items[i], PickleKind::kInteger)) {
      by_number[document.integer(items[i])] = items[i + 1];
    }
  }
  std::vector<std::vector<Slot>> groups;
  for (const PickleRef dict : document.items(param_groups)) {
    const PickleRef numbers = document.find(dict, "params");
    groups.emplace_back();
    if (!document.is(numbers, PickleKind::kList)) continue;
    for (const PickleRef number : document.items(numbers)) {
      Slot slot;
      const auto found = document.is(number, PickleKind::kInteger)
                             ? by_number.find(document.integer(number))
                             : by_number.end();
      if (found != by_number.end()) {
        slot.state = found->second;
        const DeepSpeedMoments moments = read_deepspeed_moments(build, archive, slot.state);
        if (!moments.tensors.empty()) {
          slot.has_shape = true;
          slot.shape = document.tensor(moments.tensors[0]).shape;
        }
      }
      groups.back().push_back(std::move(slot));
    }
  }
  std::vector<const DeepSpeedParameter*> candidates;
  std::vector<int32_t> numbers;
  for (size_t p = 0; p < state.parameters.size(); ++p) {
    const DeepSpeedParameter& parameter = state.parameters[p];
    if (parameter.role == ZERO_PARAM_BUFFER || parameter.tied_to >= 0) continue;
    candidates.push_back(&parameter);
    numbers.push_back(static_cast<int32_t>(p));
  }
  const std::vector<int32_t> chosen = Matching(candidates, groups, archive.path()).solve();
  build->members.assign(groups.size(), {});
  for (size_t c = 0; c < chosen.size(); ++c) {
    if (chosen[c] < 0) continue;
    DeepSpeedParameter& parameter = state.parameters[static_cast<size_t>(numbers[c])];
    const auto group = static_cast<size_t>(chosen[c]);
    const Slot& slot = groups[group][build->members[group].size()];
    build->members[group].push_back(numbers[c]);
    parameter.role = ZERO_PARAM_TRAINED;
    parameter.group = chosen[c];
    parameter.master = parameter.value;
    const DeepSpeedMoments moments = read_deepspeed_moments(build, archive, slot.state);
    parameter.step = moments.tensors.empty() ? 0 : moments.step;
    if (parameter.step < 0) parameter.step = state.global_steps - state.skipped_steps;
    for (size_t s = 0; s < moments.tensors.size(); ++s) {
      parameter.states.push_back({deepspeed_piece(*build, 0, moments.tensors[s],
                                                  parameter.name + "'s " + state.state_names[s], 0,
                                                  0, parameter.elements)});
    }
  }
  for (DeepSpeedParameter& parameter : state.parameters) { // aliases are what their owners are
    if (parameter.tied_to < 0) continue;
    const DeepSpeedParameter& owner = state.parameters[static_cast<size_t>(parameter.tied_to)];
    parameter.role = owner.role;
    parameter.group = owner.group;
  }
  build_deepspeed_groups(build, archive, param_groups);
}

} // namespace zero::checkpoint
