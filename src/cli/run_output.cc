// Lines are put together from whatever pieces the pipe gives and written by one write each, so
// that lines of different ranks do not mix.
// SPDX-License-Identifier: BSD-3-Clause
#include "cli/run_output.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>

namespace zero::cli {

namespace {

constexpr size_t kLongestLine = size_t{1} << 16; // a longer one is cut, not kept in memory
constexpr size_t kReadBytes = size_t{1} << 16;
constexpr int kLastReads = 16; // then whoever still writes is not heard any more

} // namespace

bool write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(descriptor, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN) { // somebody made our output non-blocking
      pollfd ready{descriptor, POLLOUT, 0};
      poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

void LastLines::add(std::string_view line) {
  if (most_ == 0) return;
  if (lines_.size() == most_) lines_.pop_front();
  lines_.emplace_back(line);
}

RunOutput::RunOutput(int rank, int source, int target, LastLines* last)
    : prefix_("[" + std::to_string(rank) + "] "), source_(source), target_(target), last_(last) {
  fcntl(source_, F_SETFL, fcntl(source_, F_GETFL) | O_NONBLOCK);
}

RunOutput::~RunOutput() {
  if (source_ >= 0) close(source_);
}

bool RunOutput::pass_on() {
  if (source_ < 0) return true;
  const ssize_t got = read_once();
  if (got > 0) return write_lines();
  return got < 0 ? true : end();
}

bool RunOutput::finish() {
  for (int round = 0; source_ >= 0 && round < kLastReads && read_once() > 0; ++round) {
    if (!write_lines()) return false;
  }
  return end();
}

// One read takes all that a pipe holds, so one rank cannot keep the others waiting.  As read, and
// -1 where nothing is there.
ssize_t RunOutput::read_once() {
  char buffer[kReadBytes];
  ssize_t got;
  do got = read(source_, buffer, sizeof buffer);
  while (got < 0 && errno == EINTR);
  if (got > 0) pending_.append(buffer, static_cast<size_t>(got));
  return got < 0 && errno != EAGAIN ? 0 : got;
}

bool RunOutput::end() {
  if (source_ >= 0) close(source_);
  source_ = -1;
  if (pending_.empty()) return true;
  const std::string rest = std::move(pending_);
  pending_.clear();
  return write_line(rest);
}

bool RunOutput::write_lines() {
  size_t start = 0;
  while (true) {
    size_t end = pending_.find('\n', start);
    size_t next = end + 1;
    if (end == std::string::npos) {
      if (pending_.size() - start < kLongestLine) break;
      end = next = start + kLongestLine;
    }
    if (!write_line(std::string_view(pending_).substr(start, end - start))) return false;
    start = next;
  }
  pending_.erase(0, start);
  return true;
}

bool RunOutput::write_line(std::string_view line) {
  last_->add(line);
  std::string whole = prefix_;
  whole.append(line).push_back('\n');
  return write_all(target_, whole);
}

} // namespace zero::cli
