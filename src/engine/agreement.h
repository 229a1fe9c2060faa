// How a collective call ends: the same way on every rank.  And how ranks find the first difference
// between what they brought.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <new>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/communicator.h"

namespace zero::engine {

// [collective] Returns when no rank has an error; else throws the error of the lowest rank that has
// one, on all ranks, with that rank named.  mine: this rank's, or null.  step: a number that says
// which agreement of which call this is; ranks at different ones get COMM_MISMATCH.
void agree(comm::Communicator& comm, uint64_t step, const Error* mine);

// [collective] Does work, which may fail on this rank alone and communicates nothing, and ends as
// agree does.  no_memory: what a rank says whose heap ended in it.
template <typename Work>
void together(comm::Communicator& comm, uint64_t step, Work work,
              const char* no_memory = "no memory for libzero's own tables") {
  std::optional<Error> error;
  try {
    work();
  } catch (const Error& caught) {
    error = caught;
  } catch (const std::bad_alloc&) {
    error = Error(ZERO_ERR_OUT_OF_MEMORY, no_memory);
  }
  if (error && is_fatal(error->status())) throw *error;
  agree(comm, step, error ? &*error : nullptr);
}

// [collective] Throws COMM_MISMATCH on all ranks where a rank's lines differ from rank 0's, naming
// the rank, the line's number, and both lines.  hash: of all lines, so that the lines themselves
// travel only when they differ.  what: "models", "configs".
void agree_on_lines(comm::Communicator& comm, uint64_t step, const char* what,
                    const std::vector<std::string>& lines);

} // namespace zero::engine
