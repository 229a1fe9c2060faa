// One output stream of one rank: whole lines go out with the rank before them, and the last ones
// are remembered.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <deque>
#include <string>
#include <string_view>

namespace zero::cli {

// The last lines of a rank, of both its streams in the order they were seen.
class LastLines {
 public:
  explicit LastLines(size_t most) : most_(most) {}
  void add(std::string_view line);
  const std::deque<std::string>& lines() const { return lines_; }

 private:
  size_t most_;
  std::deque<std::string> lines_;
};

class RunOutput {
 public:
  // Reads from source, which it owns and makes non-blocking; writes to target.
  RunOutput(int rank, int source, int target, LastLines* last);
  RunOutput(const RunOutput&) = delete;
  RunOutput& operator=(const RunOutput&) = delete;
  ~RunOutput();

  int descriptor() const { return source_; } // -1 once the stream has ended
  // Passes on what is there now.  False when the target does not take it any more.
  bool pass_on();
  // Passes on what is there and the unfinished last line, and closes the stream.
  bool finish();

 private:
  ssize_t read_once();
  bool end();
  bool write_lines();
  bool write_line(std::string_view line);

  std::string prefix_;
  int source_;
  int target_;
  LastLines* last_;
  std::string pending_; // the beginning of a line whose end has not come
};

// Writes all of text; false on an error other than an interruption.
bool write_all(int descriptor, std::string_view text);

} // namespace zero::cli
