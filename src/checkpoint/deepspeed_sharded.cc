// Stages 1 to 3: masters and states out of the ranks' flat buffers.
// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include "base/error.h"
#include "checkpoint/deepspeed_build.h"

namespace zero::checkpoint {
namespace {

using Number = unsigned long long;

uint64_t elements_of(const PickleDocument& document, PickleRef tensor) {
  return document.is(tensor, PickleKind::kTensor) ? document.tensor(tensor).elements() : 0;
}

PickleRef item(const PickleDocument& document, PickleRef list, size_t index) {
  const bool fits =
      (document.is(list, PickleKind::kList) || document.is(list, PickleKind::kTuple)) &&
      index < document.items(list).size();
  return fits ? document.items(list)[index] : kNoPickle;
}

// The value of an integer key of a dict: torch numbers parameters so.
PickleRef numbered(const PickleDocument& document, PickleRef dict, size_t number) {
  if (!document.is(dict, PickleKind::kDict)) return item(document, dict, number);
  const std::vector<PickleRef>& items = document.items(dict);
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    if (document.is(items[i], PickleKind::kInteger) &&
        document.integer(items[i]) == static_cast<int64_t>(number)) {
      return items[i + 1];
    }
  }
  return kNoPickle;
}

// One rank's flat buffer of a group: its master and what the optimizer keeps beside it.
struct Flat {
  PickleRef master = kNoPickle;
  DeepSpeedMoments moments;
};

void add_pieces(DeepSpeedBuild* build, uint32_t archive, const Flat& flat,
                DeepSpeedParameter* parameter, uint64_t begin, uint64_t param_begin,
                uint64_t count) {
  if (count == 0) return;
  const std::string& name = parameter->name;
  parameter->master.push_back(
      deepspeed_piece(*build, archive, flat.master, name + "'s master", begin, param_begin, count));
  parameter->states.resize(build->state.state_names.size());
  for (size_t s = 0; s < flat.moments.tensors.size(); ++s) {
    parameter->states[s].push_back(deepspeed_piece(*build, archive, flat.moments.tensors[s],
                                                   name + "'s " + build->state.state_names[s],
                                                   begin, param_begin, count));
  }
}

void set_step(DeepSpeedBuild* build, DeepSpeedParameter* parameter, const Flat& flat) {
  parameter->step = flat.moments.step >= 0 ? flat.moments.step
                                           : build->state.global_steps - build->state.skipped_steps;
  if (flat.moments.tensors.empty()) parameter->step = 0;
}

void check_cover(const DeepSpeedBuild& build, const DeepSpeedParameter& parameter) {
  uint64_t end = 0;
  for (const DeepSpeedPiece& piece : parameter.master) {
    if (piece.begin != end) break;
    end += piece.count;
  }
  if (end == parameter.elements) return;
  fail(ZERO_ERR_FILE_FORMAT,
       "file \"%s\": the ranks hold %llu elements of the master of param \"%s\", expected %llu",
       build.optimizer(0).path().c_str(), static_cast<Number>(end), parameter.name.c_str(),
       static_cast<Number>(parameter.elements));
}

PickleRef optimizer_state(const DeepSpeedBuild& build, size_t rank) {
  const DeepSpeedArchive& archive = build.optimizer(rank);
  const PickleRef state = archive.document().find(archive.root(), "optimizer_state_dict");
  if (!archive.document().is(state, PickleKind::kDict)) {
    fail(ZERO_ERR_FILE_FORMAT, "file \"%s\": expected \"optimizer_state_dict\"",
         archive.path().c_str());
  }
  return state;
}

class FlatGroups {
 public:
  explicit FlatGroups(DeepSpeedBuild* build) : build_(*build) {}

  void read() {
    std::vector<DeepSpeedParameter>& parameters = build_.state.parameters;
    for (size_t g = 0; g < build_.members.size(); ++g) read_group(g);
    for (const DeepSpeedParameter& parameter : parameters) {
      if (parameter.role == ZERO_PARAM_TRAINED && parameter.tied_to < 0) {
        check_cover(build_, parameter);
      }
    }
    const DeepSpeedArchive& archive = build_.optimizer(0);
    const PickleRef base =
        archive.document().find(optimizer_state(build_, 0), "base_optimizer_state");
    build_deepspeed_groups(&build_, archive, archive.document().find(base, "param_groups"));
  }

 private:
  Flat flat_of(size_t rank, size_t group) {
    const DeepSpeedArchive& archive = build_.optimizer(rank);
    const PickleDocument& document = archive.document();
    const PickleRef state = optimizer_state(build_, rank);
    const PickleRef base = document.find(state, "base_optimizer_state");
    const PickleRef inner = document.find(base, "state");
    Flat flat;
    flat.master = item(document, document.find(state, "single_partition_of_fp32_groups"), group);
    flat.moments = read_deepspeed_moments(
        &build_, archive, numbered(document, inner == kNoPickle ? base : inner, group));
    return flat;
  }

  // With the map that DeepSpeed saves each rank says where its parts lie; without it they follow
  // one another through the ranks' buffers.
  void read_group(size_t group) {
    std::vector<uint64_t> done(build_.members[group].size(), 0);
    size_t current = 0;
    for (size_t rank = 0; rank < build_.ranks(); ++rank) {
      const DeepSpeedArchive& archive = build_.optimizer(rank);
      const PickleDocument& document = archive.document();
      const PickleRef maps = document.find(optimizer_state(build_, rank), "param_slice_mappings");
      const PickleRef map = item(document, maps, group);
      const Flat flat = flat_of(rank, group);
      if (document.is(map, PickleKind::kDict)) {
        read_mapped(rank, group, flat, map, &done);
      } else {
        read_in_row(rank, group, flat, &done, &current);
      }
    }
  }

  DeepSpeedParameter& member(size_t group, size_t index) {
    return build_.state.parameters[static_cast<size_t>(build_.members[group][index])];
  }

  void read_mapped(size_t rank, size_t group, const Flat& flat, PickleRef map,
                   std::vector<uint64_t>* done) {
    const DeepSpeedArchive& archive = build_.optimizer(rank);
    const PickleDocument& document = archive.document();
    std::unordered_map<std::string, PickleRef> fragments;
    const std::vector<PickleRef>& items = document.items(map);
    for (size_t i = 0; i + 1 < items.size(); i += 2) {
      if (document.is(items[i], PickleKind::kText)) {
        fragments[document.text(items[i])] = items[i + 1];
      }
    }
    for (size_t m = 0; m < done->size(); ++m) {
      DeepSpeedParameter& parameter = member(group, m);
      const auto found = fragments.find(parameter.name);
      set_step(&build_, &parameter, flat);
      if (found == fragments.end()) continue;
      const PickleRef start = document.find(found->second, "start");
      const PickleRef count = document.find(found->second, "numel");
      if (!document.is(start, PickleKind::kInteger) || !document.is(count, PickleKind::kInteger) ||
          document.integer(start) < 0 || document.integer(count) < 0 ||
          static_cast<uint64_t>(document.integer(count)) > parameter.elements - (*done)[m]) {
        fail(ZERO_ERR_FILE_FORMAT,
             "file \"%s\": param_slice_mappings of param \"%s\" hold no range of its %llu elements",
             archive.path().c_str(), parameter.name.c_str(),
             static_cast<Number>(parameter.elements));
      }
      const auto pieces = static_cast<uint64_t>(document.integer(count));
      add_pieces(&build_, static_cast<uint32_t>(build_.models + rank), flat, &parameter,
                 static_cast<uint64_t>(document.integer(start)), (*done)[m], pieces);
      (*done)[m] += pieces;
    }
  }

  void read_in_row(size_t rank, size_t group, const Flat& flat, std::vector<uint64_t>* done,
                   size_t* current) {
    const uint64_t size = elements_of(build_.optimizer(rank).document(), flat.master);
    for (size_t m = 0; m < done->size(); ++m) set_step(&build_, &member(group, m), flat);
    uint64_t at = 0;
    while (*current < done->size()) {
      DeepSpeedParameter& parameter = member(group, *current);
      const uint64_t count = std::min(size - at, parameter.elements - (*done)[*current]);
      add_pieces(&build_, static_cast<uint32_t>(build_.models + rank), flat, &parameter, at,
                 (*done)[*current], count);
      at += count;
      (*done)[*current] += count;
      if ((*done)[*current] < parameter.elements) return; // the next rank goes on
      ++*current;
    }
  }

  DeepSpeedBuild& build_;
};

} // namespace

void build_deepspeed_flat_groups(DeepSpeedBuild* build) {
  FlatGroups(build).read();
}

// Each rank holds ceil(N / ranks) elements of every parameter, in the groups' order, one after
// another through its sub-groups; the last ranks' are padded.
void build_deepspeed_partitions(DeepSpeedBuild* build) {
  DeepSpeedState& state = build->state;
  const uint64_t ranks = build->ranks();
  for (uint64_t rank = 0; rank < ranks; ++rank) {
    const DeepSpeedArchive& archive = build->optimizer(rank);
    const PickleDocument& document = archive.document();
    const PickleRef outer = optimizer_state(*build, rank);
    const PickleRef inner = document.find(outer, "optimizer_state_dict");
    const PickleRef flat_list = document.find(outer, "fp32_flat_groups");
    if (!document.is(flat_list, PickleKind::kList)) {
      fail(ZERO_ERR_FILE_FORMAT, "file \"%s\": expected \"fp32_flat_groups\", a list of tensors",
           archive.path().c_str());
    }
    std::vector<Flat> flats;
    for (size_t s = 0; s < document.items(flat_list).size(); ++s) {
      Flat flat;
      flat.master = document.items(flat_list)[s];
      flat.moments = read_deepspeed_moments(build, archive,
                                            numbered(document, document.find(inner, "state"), s));
      flats.push_back(std::move(flat));
    }
    size_t sub_group = 0;
    uint64_t at = 0; // in the sub-group
    for (const std::vector<int32_t>& members : build->members) {
      for (const int32_t number : members) {
        DeepSpeedParameter& parameter = state.parameters[static_cast<size_t>(number)];
        const uint64_t share = parameter.elements / ranks + (parameter.elements % ranks != 0);
        uint64_t taken = 0;
        while (taken < share) {
          const uint64_t size =
              sub_group < flats.size() ? elements_of(document, flats[sub_group].master) : 0;
          if (sub_group >= flats.size()) {
            fail(ZERO_ERR_FILE_FORMAT,
                 "file \"%s\": fp32_flat_groups end before param \"%s\", expected %llu elements of "
                 "it",
                 archive.path().c_str(), parameter.name.c_str(), static_cast<Number>(share));
          }
          if (at == size) {
            ++sub_group;
            at = 0;
            continue;
          }
          const uint64_t count = std::min(size - at, share - taken);
          const uint64_t begin = std::min(rank * share + taken, parameter.elements);
          const uint64_t real = std::min(count, parameter.elements - begin);
          add_pieces(build, static_cast<uint32_t>(build->models + rank), flats[sub_group],
                     &parameter, at, begin, real);
          set_step(build, &parameter, flats[sub_group]);
          at += count;
          taken += count;
        }
      }
    }
    while (sub_group < flats.size() && at == elements_of(document, flats[sub_group].master)) {
      ++sub_group;
      at = 0;
    }
    if (sub_group < flats.size()) {
      fail(ZERO_ERR_FILE_FORMAT,
           "file \"%s\": fp32_flat_groups hold more elements than the model's parameters",
           archive.path().c_str());
    }
    if (rank == 0) {
      build_deepspeed_groups(build, archive, document.find(inner, "param_groups"));
    }
  }
  for (const DeepSpeedParameter& parameter : state.parameters) {
    if (parameter.role == ZERO_PARAM_TRAINED && parameter.tied_to < 0) {
      check_cover(*build, parameter);
    }
  }
}

void build_deepspeed_frozen(DeepSpeedBuild* build) {
  for (DeepSpeedParameter& parameter : build->state.parameters) {
    if (parameter.role != ZERO_PARAM_FROZEN || parameter.tied_to >= 0 || !parameter.value.empty()) {
      continue;
    }
    const uint64_t ranks = build->models;
    const uint64_t share = parameter.elements / ranks + (parameter.elements % ranks != 0);
    for (uint64_t rank = 0; rank < ranks; ++rank) {
      const DeepSpeedArchive& archive = build->model(rank);
      const PickleRef tensor = archive.document().find(
          archive.document().find(archive.root(), "frozen_param_fragments"), parameter.name);
      const uint64_t begin = std::min(rank * share, parameter.elements);
      const uint64_t count = std::min(share, parameter.elements - begin);
      if (count == 0) continue;
      parameter.value.push_back(deepspeed_piece(*build, static_cast<uint32_t>(rank), tensor,
                                                parameter.name + "'s fragment", 0, begin, count));
      parameter.dtype = parameter.value.back().dtype;
    }
  }
}

} // namespace zero::checkpoint
