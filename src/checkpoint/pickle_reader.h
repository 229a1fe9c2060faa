// Reads a pickle without doing what it asks for: it builds plain data and the few torch and
// DeepSpeed classes below; a name of any other class or function is an error that says it.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>

#include "checkpoint/pickle_document.h"

namespace zero::checkpoint {

constexpr uint64_t kLargestPickle = uint64_t{1} << 28;

// file names it in sentences, with the offset inside the pickle.  Throws FILE_FORMAT; UNSUPPORTED
// for a class or an opcode that is not known.  Memory is bounded by the pickle's length, nothing
// recurses.
PickleDocument read_pickle(std::string_view bytes, const std::string& file);

} // namespace zero::checkpoint
