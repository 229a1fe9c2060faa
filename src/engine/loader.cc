// SPDX-License-Identifier: BSD-3-Clause
#include "engine/loader.h"

#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>

#include "base/checked.h"
#include "base/dtype.h"
#include "engine/agreement.h"

namespace zero::engine {
namespace {

// Which agreement of zero_checkpoint_load this is.
enum Step : uint64_t { kMayLoad = 130, kSame = 131, kChecked = 132, kRead = 133, kEqual = 134 };

constexpr uint64_t kStepElements = 64 * 1024; // these stay in a cache between note and write
constexpr uint64_t kTieBlock = 32; // elements, from the parameter's start, that share a word

plan::GroupValues group_values(const checkpoint::StoredGroup& from) {
  plan::GroupValues to;
  to.frozen = from.frozen;
  to.lr = from.lr;
  to.lr_scale = from.lr_scale;
  to.weight_decay = from.weight_decay;
  to.beta1 = from.beta1;
  to.beta2 = from.beta2;
  to.epsilon = from.epsilon;
  to.momentum = from.momentum;
  return to;
}

const checkpoint::StoredPart& stored_part(const checkpoint::Manifest& manifest,
                                          const checkpoint::CheckpointReader::PartRange& range) {
  const auto root = static_cast<size_t>(manifest.root_of(range.parameter));
  return manifest.parameters[root].parts[static_cast<size_t>(range.part)];
}

// Elements that have been read and checked, on their way to where they belong.
struct Placing {
  StateRanges state;
  UndoLog* undo;
  const checkpoint::StoredPart& part;
  zero_param_id root;
  uint64_t offset, count; // elements of the parameter
  const std::byte* data;
  std::mutex mutex;
  std::exception_ptr failure;
  std::atomic<bool> no_memory;

  // Two threads never write one word of ties.
  uint64_t cut(uint64_t at) const {
    if (at == 0) return 0;
    return std::min(count, round_up(offset + at, kTieBlock) - offset);
  }
  void place(uint64_t begin, uint64_t end) {
    const StateRanges::VisitMemory note = [&](std::byte* memory, uint64_t bytes) {
      if (!no_memory && !undo->note(memory, bytes)) no_memory = true;
    };
    for (uint64_t at = begin; at < end;) {
      const uint64_t next = std::min(end, cut(at + kStepElements));
      state.for_each_memory(root, part.kind, part.index, offset + at, next - at, note);
      if (no_memory) return;
      state.write(root, part.kind, part.index, offset + at, next - at,
                  data + at * dtype_bytes(part.dtype), part.dtype);
      at = next;
    }
  }
  static void run(void* context, uint64_t begin, uint64_t end, int32_t) {
    Placing& self = *static_cast<Placing*>(context);
    try {
      self.place(self.cut(begin), end == self.count ? self.count : self.cut(end));
    } catch (...) {
      const std::lock_guard<std::mutex> lock(self.mutex);
      self.failure = std::current_exception();
    }
  }
};

} // namespace

// tag: the index into matched.
std::vector<Loader::PartRange> Loader::needed(const checkpoint::Manifest& manifest,
                                              const std::vector<MatchedParameter>& matched) const {
  const StateRanges state(context_);
  std::vector<PartRange> ranges;
  for (size_t m = 0; m < matched.size(); ++m) {
    const zero_span span = state.wanted(matched[m].root);
    if (span.count == 0) continue;
    const int32_t row = matched[m].row;
    const auto parts = static_cast<int32_t>(
        manifest.parameters[static_cast<size_t>(manifest.root_of(row))].parts.size());
    // The value or the master comes first.
    for (int32_t part = 0; part < (matched[m].with_state ? parts : 1); ++part) {
      ranges.push_back({row, part, span.offset, span.count, m});
    }
  }
  return ranges;
}

void Loader::agree_on_checkpoint(const checkpoint::Manifest& manifest, const LoadOptions& options) {
  agree_on_lines(
      *context_.comm, kSame, "checkpoints to load",
      {format("checkpoint %016llx, step %lld", static_cast<unsigned long long>(manifest.id),
              static_cast<long long>(manifest.step)),
       format("weights_only %d, allow_missing %d, allow_extra %d", options.weights_only,
              options.allow_missing, options.allow_extra)});
}

// What the plan has and nobody uses between two steps.  Gradients must not be there afterwards, nor
// what may be taken for them.
void Loader::lend_memory(UndoLog* undo) const {
  if (const Saver::Memory staging = saver_.idle_staging(); staging.bytes > 0) {
    undo->lend(staging.memory, staging.bytes, /*cleared=*/false);
  }
  for (const plan::Region& region : context_.plan->memory.regions) {
    if (region.parameter_class < 0) continue;
    const ClassMemory& memory = context_.storage->of_class(region.parameter_class);
    std::byte* const start = region.kind == plan::RegionKind::kGrads           ? memory.grads
                             : region.kind == plan::RegionKind::kPool          ? memory.pool
                             : region.kind == plan::RegionKind::kExtraShard    ? memory.extra
                             : region.kind == plan::RegionKind::kGatheredGrads ? memory.gathered
                                                                               : nullptr;
    undo->lend(start, region.bytes, /*cleared=*/true);
  }
}

bool Loader::prepare(const checkpoint::Manifest& manifest,
                     const std::vector<MatchedParameter>& matched,
                     const std::vector<PartRange>& ranges, UndoLog* undo) const {
  if (context_.device->place() != ZERO_PLACE_HOST) return false;
  const StateRanges state(context_);
  for (const PartRange& range : ranges) {
    const checkpoint::StoredPart& part = stored_part(manifest, range);
    state.for_each_memory(matched[range.tag].root, part.kind, part.index, range.offset, range.count,
                          [&](std::byte* memory, uint64_t bytes) { undo->expect(memory, bytes); });
  }
  lend_memory(undo);
  return undo->begin();
}

bool Loader::place_tensors(const checkpoint::CheckpointReader& reader,
                           const std::vector<MatchedParameter>& matched,
                           const std::vector<PartRange>& ranges, UndoLog* undo) {
  struct NoMemory {};
  const checkpoint::Manifest& manifest = reader.manifest();
  if (!prepare(manifest, matched, ranges, undo)) {
    undo->clear();
    return false;
  }
  try {
    reader.read_all(ranges, [&](const PartRange& range, uint64_t offset, uint64_t count,
                                const std::byte* data) {
      const checkpoint::StoredPart& part = stored_part(manifest, range);
      Placing placing{StateRanges(context_),
                      undo,
                      part,
                      matched[range.tag].root,
                      range.offset + offset,
                      count,
                      data,
                      {},
                      {},
                      {}};
      context_.device->parallel(count, kStepElements, &Placing::run, &placing);
      if (placing.failure) std::rethrow_exception(placing.failure);
      if (placing.no_memory) throw NoMemory{};
    });
  } catch (const NoMemory&) {
    undo->roll_back();
    return false;
  }
  return true;
}

void Loader::write_tensors(const checkpoint::CheckpointReader& reader,
                           const std::vector<MatchedParameter>& matched,
                           const std::vector<PartRange>& ranges) {
  const checkpoint::Manifest& manifest = reader.manifest();
  StateRanges state(context_);
  reader.read_all(
      ranges, [&](const PartRange& range, uint64_t offset, uint64_t count, const std::byte* data) {
        const checkpoint::StoredPart& part = stored_part(manifest, range);
        state.write(matched[range.tag].root, part.kind, part.index, range.offset + offset, count,
                    data, part.dtype);
      });
}

// What came without its states.
void Loader::clear_states(const std::vector<MatchedParameter>& matched) {
  StateRanges state(context_);
  for (const MatchedParameter& m : matched) {
    const bool trained = context_.parameter(m.root).role == ZERO_PARAM_TRAINED;
    if (trained && !m.with_state) state.clear_states(m.root);
  }
}

void Loader::restore_run(const checkpoint::Manifest& manifest,
                         const std::vector<MatchedParameter>& matched, const LoadOptions& options) {
  StepperState state = stepper_.state();
  for (const MatchedParameter& m : matched) {
    const int32_t row = manifest.root_of(m.row);
    state.param_steps[static_cast<size_t>(m.root)] =
        m.with_state ? manifest.parameters[static_cast<size_t>(row)].steps : 0;
  }
  if (!options.weights_only) {
    state.steps = manifest.step;
    state.skipped_total = manifest.skipped_total;
    if (manifest.has_loss_scale) {
      const checkpoint::StoredLossScale& scale = manifest.loss_scale;
      state.loss_scale = {scale.scale, scale.credits, scale.iteration, scale.last_overflow};
    }
    for (size_t g = 0; g < manifest.groups.size(); ++g) {
      stepper_.groups().set(static_cast<zero_group_id>(g), group_values(manifest.groups[g]));
    }
    saver_.set_run(manifest.run);
  }
  stepper_.restore(state);
}

void compare_parameters(Context& context, int64_t steps) {
  if (context.ranks() == 1) return;
  std::vector<std::string> lines;
  const std::vector<plan::Parameter>& parameters = context.plan->model.parameters();
  for (size_t p = 0; p < parameters.size(); ++p) {
    const auto id = static_cast<zero_param_id>(p);
    if (parameters[p].root != id) continue;
    const std::byte* value = context.storage->whole_value(id);
    const uint64_t bytes = parameters[p].elements * dtype_bytes(parameters[p].dtype);
    if (value == nullptr || bytes == 0) continue;
    lines.push_back(format("param \"%s\" has checksum %016llx", parameters[p].name.c_str(),
                           static_cast<unsigned long long>(XXH3_64bits(value, bytes))));
  }
  lines.push_back(format("step %lld", static_cast<long long>(steps)));
  agree_on_lines(*context.comm, kEqual, "loaded parameters", lines);
}

void Loader::load(const checkpoint::CheckpointReader& reader, const LoadOptions& options) {
  comm::Communicator& comm = *context_.comm;
  const checkpoint::Manifest& manifest = reader.manifest();
  std::vector<MatchedParameter> matched;
  std::vector<PartRange> ranges;
  together(comm, kMayLoad, [&] {
    check_between_steps(reducer_, loans_, stepper_, "zero_checkpoint_load");
    matched = match_parameters(reader, context_, stepper_, options);
    GroupValueTable groups = stepper_.groups(); // a value that it refuses is refused here
    for (size_t g = 0; !options.weights_only && g < manifest.groups.size(); ++g) {
      groups.set(static_cast<zero_group_id>(g), group_values(manifest.groups[g]));
    }
    ranges = needed(manifest, matched);
  });
  agree_on_checkpoint(manifest, options);
  context_.sequence->drain();
  bool placed = false;
  {
    UndoLog undo(context_);
    try {
      together(comm, kChecked, [&] {
        placed = place_tensors(reader, matched, ranges, &undo);
        if (placed) return;
        context_.log.write(ZERO_LOG_INFO,
                           "zero_checkpoint_load: there is no memory to take it back from, so what "
                           "is needed is read twice: first to check it");
        reader.read_all(ranges, {});
      });
    } catch (...) {
      undo.roll_back();
      throw;
    }
  }
  std::optional<Error> torn;
  try {
    together(comm, kRead, [&] {
      if (!placed) write_tensors(reader, matched, ranges);
    });
  } catch (const Error& error) {
    torn = error;
  }
  if (torn) {
    // What was sound a moment ago is not now, and part of it is written.
    context_.failure.record_told(*torn);
    throw torn->with_context("the state is half loaded: this runtime is of no more use");
  }
  clear_states(matched);
  restore_run(manifest, matched, options);
  stepper_.gather_values();
  compare_parameters(context_, stepper_.steps());
}

} // namespace zero::engine
