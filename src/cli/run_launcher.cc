// One loop over the ranks' output, signals and clocks.  Each rank leads a process group of its
// own, so that a signal reaches what it has started and the terminal's Ctrl-C comes once.
// SPDX-License-Identifier: BSD-3-Clause
#include "cli/run_launcher.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>

#include "cli/run_output.h"
#include "cli/run_process.h"

namespace zero::cli {

namespace {

constexpr int kTimeUpCode = 124;
constexpr int kSignalBase = 128;
// For what a rank has left behind and still holds its output.
constexpr int kDrainMilliseconds = 200;

constexpr int kForwarded[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT,
                              SIGUSR1, SIGUSR2, SIGCONT, SIGWINCH};

struct Rank {
  Rank(int number, const StartedRank& started, size_t tail_lines)
      : pid(started.pid),
        last(tail_lines),
        out(number, started.out, STDOUT_FILENO, &last),
        err(number, started.err, STDERR_FILENO, &last) {}

  pid_t pid;
  bool running = true;
  int status = 0; // as waitpid gives it
  LastLines last;
  RunOutput out;
  RunOutput err;
};

int code_of(int status) {
  return WIFSIGNALED(status) ? kSignalBase + WTERMSIG(status) : WEXITSTATUS(status);
}

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) {
    return "was ended by signal " + std::to_string(WTERMSIG(status)) + " (" +
           strsignal(WTERMSIG(status)) + ")";
  }
  return "exited with code " + std::to_string(WEXITSTATUS(status));
}

void say(const std::string& text) {
  write_all(STDERR_FILENO, "zero run: " + text + "\n");
}

class Launcher {
 public:
  explicit Launcher(const RunOptions& options) : options_(options) {
    sigemptyset(&handled_);
    for (int signal : kForwarded) sigaddset(&handled_, signal);
    sigaddset(&handled_, SIGTSTP);
    sigaddset(&handled_, SIGCHLD);
    sigprocmask(SIG_BLOCK, &handled_, &inherited_);
    signal(SIGPIPE, SIG_IGN);
    signals_ = signalfd(-1, &handled_, SFD_CLOEXEC | SFD_NONBLOCK);
  }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;
  ~Launcher() { close(signals_); }

  int run() {
    start_all();
    started_at_ = now_seconds();
    while (anyone_running()) {
      wait_for_news();
      pass_on_output();
      read_signals();
      reap();
      look_at_clocks();
    }
    drain();
    report();
    return code_;
  }

 private:
  void start_all() {
    RankEnvironment environment(options_);
    for (int rank = 0; rank < options_.ranks; ++rank) {
      const StartedRank started =
          start_rank(options_.command, environment.of(rank), rank, inherited_);
      if (started.error != 0) {
        say("rank " + std::to_string(rank) + ": cannot start " + options_.command[0] + ": " +
            std::strerror(started.error));
        end_others(started.error == ENOENT ? 127 : 126);
        return;
      }
      ranks_.push_back(
          std::make_unique<Rank>(rank, started, static_cast<size_t>(options_.tail_lines)));
    }
  }

  bool anyone_running() const {
    return std::any_of(ranks_.begin(), ranks_.end(),
                       [](const auto& rank) { return rank->running; });
  }

  void wait_for_news() {
    std::vector<pollfd> sources{{signals_, POLLIN, 0}};
    for (const auto& rank : ranks_) {
      for (const RunOutput* stream : {&rank->out, &rank->err}) {
        if (stream->descriptor() >= 0) sources.push_back({stream->descriptor(), POLLIN, 0});
      }
    }
    poll(sources.data(), sources.size(), milliseconds_to_next_clock());
  }

  int milliseconds_to_next_clock() const {
    double next = -1;
    if (kill_at_ && !killed_) next = *kill_at_;
    if (options_.timeout_seconds > 0 && !ending_) next = started_at_ + options_.timeout_seconds;
    if (next < 0) return -1;
    return static_cast<int>(std::clamp((next - now_seconds()) * 1000 + 1, 0.0, 1e6));
  }

  void pass_on_output() {
    for (const auto& rank : ranks_) {
      if (!rank->out.pass_on() || !rank->err.pass_on()) output_is_gone();
    }
  }

  // As SIGPIPE would have done to the rank itself.
  void output_is_gone() {
    if (!ending_) end_others(kSignalBase + SIGPIPE);
  }

  void read_signals() {
    signalfd_siginfo info;
    while (read(signals_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      const int signal = static_cast<int>(info.ssi_signo);
      if (signal == SIGCHLD) continue;
      if (signal == SIGTSTP) {
        send_all(SIGSTOP);
        raise(SIGSTOP);
      } else {
        send_all(signal);
      }
    }
  }

  void send_all(int signal) {
    for (const auto& rank : ranks_) {
      if (rank->running) kill(-rank->pid, signal);
    }
  }

  // Of ranks found dead in one round the one that a signal ended is taken as the first: the exit
  // codes of the others are most often their answer to it.
  void reap() {
    const Rank* first = nullptr;
    for (const auto& rank : ranks_) {
      if (!rank->running || waitpid(rank->pid, &rank->status, WNOHANG) != rank->pid) continue;
      rank->running = false;
      if (!rank->out.pass_on() || !rank->err.pass_on()) output_is_gone();
      if (code_of(rank->status) == 0) continue;
      if (first == nullptr || (WIFSIGNALED(rank->status) && !WIFSIGNALED(first->status))) {
        first = rank.get();
      }
    }
    if (first == nullptr || ending_) return;
    failed_ = first;
    say("rank " + number_of(first) + " " + how_it_ended(first->status) +
        (anyone_running() ? "; ending the others" : ""));
    end_others(code_of(first->status));
  }

  std::string number_of(const Rank* rank) const {
    const auto found = std::find_if(ranks_.begin(), ranks_.end(),
                                    [rank](const auto& other) { return other.get() == rank; });
    return std::to_string(found - ranks_.begin());
  }

  void end_others(int code) {
    ending_ = true;
    code_ = code;
    send_all(SIGTERM);
    send_all(SIGCONT); // a stopped rank would not see it
    kill_at_ = now_seconds() + options_.grace_seconds;
  }

  void look_at_clocks() {
    const double now = now_seconds();
    if (!ending_ && options_.timeout_seconds > 0 && now >= started_at_ + options_.timeout_seconds) {
      char seconds[32];
      std::snprintf(seconds, sizeof seconds, "%g", options_.timeout_seconds);
      say("the time of " + std::string(seconds) + " s is up; ending the ranks");
      end_others(kTimeUpCode);
    }
    if (kill_at_ && !killed_ && now >= *kill_at_ && anyone_running()) {
      killed_ = true;
      send_all(SIGKILL);
    }
  }

  // The ranks are gone; what they left in their groups goes too where the run failed.
  void drain() {
    if (ending_) {
      for (const auto& rank : ranks_) kill(-rank->pid, SIGKILL);
    }
    const double until = now_seconds() + kDrainMilliseconds / 1000.0;
    bool open = true;
    while (open && now_seconds() < until) {
      pass_on_output();
      open = std::any_of(ranks_.begin(), ranks_.end(), [](const auto& rank) {
        return rank->out.descriptor() >= 0 || rank->err.descriptor() >= 0;
      });
      if (open) poll(nullptr, 0, 5);
    }
    for (const auto& rank : ranks_) {
      rank->out.finish();
      rank->err.finish();
    }
  }

  void report() const {
    if (failed_ == nullptr || ranks_.size() == 1 || failed_->last.lines().empty()) return;
    say("the last lines of rank " + number_of(failed_) + ", which " +
        how_it_ended(failed_->status) + ":");
    for (const std::string& line : failed_->last.lines()) {
      write_all(STDERR_FILENO, "  " + line + "\n");
    }
  }

  const RunOptions& options_;
  sigset_t handled_;
  sigset_t inherited_;
  int signals_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  double started_at_ = 0;
  bool ending_ = false; // the others have been told to end
  bool killed_ = false;
  std::optional<double> kill_at_;
  const Rank* failed_ = nullptr;
  int code_ = 0;
};

} // namespace

int launch_ranks(const RunOptions& options) {
  return Launcher(options).run();
}

} // namespace zero::cli
