// Loads a checkpoint into a run: all of it or nothing, and all ranks end the same way.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "checkpoint/checkpoint_reader.h"
#include "engine/load_match.h"
#include "engine/parameter_loans.h"
#include "engine/saver.h"
#include "engine/state_ranges.h"
#include "engine/undo_log.h"

namespace zero::engine {

// [collective] Whole parameters are held by every rank below stage 3, buffers always: their bytes
// must be equal, else COMM_MISMATCH names the first that is not.
void compare_parameters(Context& context, int64_t steps);

class Loader {
 public:
  Loader(Context& context, GradientReducer& reducer, ParameterLoans& loans, Stepper& stepper,
         Saver& saver)
      : context_(context), reducer_(reducer), loans_(loans), stepper_(stepper), saver_(saver) {}

  // [collective]
  void load(const checkpoint::CheckpointReader& reader, const LoadOptions& options);

 private:
  using PartRange = checkpoint::CheckpointReader::PartRange;
  std::vector<PartRange> needed(const checkpoint::Manifest& manifest,
                                const std::vector<MatchedParameter>& matched) const;
  void agree_on_checkpoint(const checkpoint::Manifest& manifest, const LoadOptions& options);
  // Lends it what there is; false: it has not enough, or is too dear.
  bool prepare(const checkpoint::Manifest& manifest, const std::vector<MatchedParameter>& matched,
               const std::vector<PartRange>& ranges, UndoLog* undo) const;
  void lend_memory(UndoLog* undo) const;
  // One pass: each range is checked, what it takes the place of goes into undo, it is written.
  // False: undo does not fit in memory; then nothing is changed.
  bool place_tensors(const checkpoint::CheckpointReader& reader,
                     const std::vector<MatchedParameter>& matched,
                     const std::vector<PartRange>& ranges, UndoLog* undo);
  // The second of two passes.
  void write_tensors(const checkpoint::CheckpointReader& reader,
                     const std::vector<MatchedParameter>& matched,
                     const std::vector<PartRange>& ranges);
  void clear_states(const std::vector<MatchedParameter>& matched);
  void restore_run(const checkpoint::Manifest& manifest,
                   const std::vector<MatchedParameter>& matched, const LoadOptions& options);

  Context& context_;
  GradientReducer& reducer_;
  ParameterLoans& loans_;
  Stepper& stepper_;
  Saver& saver_;
};

} // namespace zero::engine
