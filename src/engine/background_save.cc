// SPDX-License-Identifier: BSD-3-Clause
#include "engine/background_save.h"

#include <algorithm>
#include <chrono>

#include "checkpoint/quiet_thread.h"

namespace zero::engine {
namespace {

using checkpoint::SaveMark;
using checkpoint::SaveMarks;

constexpr auto kFirstPause = std::chrono::milliseconds(2);
constexpr auto kLongestPause = std::chrono::milliseconds(50);
constexpr int kMostFailures = 100; // in a row: some seconds

template <typename Work>
std::optional<Error> error_of(Work work) {
  try {
    work();
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return Error(ZERO_ERR_OUT_OF_MEMORY, "no memory to save in the background");
  } catch (const std::exception& error) {
    return Error(ZERO_ERR_INTERNAL, std::string("a bug in libzero: ") + error.what());
  }
  return std::nullopt;
}

Error of_rank(const Error& error, int32_t rank) {
  return Error(error.status(), format("rank %d: ", rank) + error.message(),
               error.rank() >= 0 ? error.rank() : rank, error.native_code(), error.origin());
}

} // namespace

BackgroundSave::BackgroundSave(Job job) : job_(std::move(job)) {
  thread_ = checkpoint::start_quiet_thread([this] { run(); });
}

BackgroundSave::~BackgroundSave() {
  give_up();
  thread_.join();
}

void BackgroundSave::give_up() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    given_up_ = true;
  }
  changed_.notify_all();
}

std::optional<Error> BackgroundSave::error() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return error_;
}

std::optional<Error> BackgroundSave::wait_for_piece() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return piece_done_; });
  return piece_error_;
}

std::optional<Error> BackgroundSave::wait_for_end() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return ended_.load(); });
  return error_;
}

void BackgroundSave::end(std::optional<Error> error) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    error_ = std::move(error);
    ended_.store(true, std::memory_order_release);
  }
  changed_.notify_all();
}

bool BackgroundSave::poll(const std::function<bool()>& done) {
  auto pause = kFirstPause;
  for (int failures = 0;;) {
    try {
      if (done()) return true;
      failures = 0;
    } catch (const Error&) {
      if (++failures == kMostFailures) throw;
    }
    std::unique_lock<std::mutex> lock(mutex_);
    if (changed_.wait_for(lock, pause, [&] { return given_up_; })) return false;
    pause = std::min(2 * pause, kLongestPause);
  }
}

void BackgroundSave::write_piece() {
  const checkpoint::Source source = [this](const checkpoint::PieceItem& item, uint64_t offset,
                                           uint64_t count, std::byte* out) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (given_up_) fail(ZERO_ERR_INVALID_STATE, "the save was given up: the runtime has ended");
    }
    job_.source(item, offset, count, out);
  };
  SaveMark mark;
  mark.error = error_of([&] {
    mark.table_checksum = table_checksum_ =
        checkpoint::write_piece(job_.staging.piece(job_.rank), job_.manifest, job_.rank, source)
            .table_checksum;
  });
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    piece_error_ = mark.error;
    piece_done_ = true;
  }
  changed_.notify_all();
  // Rank 0's is the verdict.  Who cannot speak has no answer to wait for.
  if (job_.rank != 0 && !job_.marks.put(mark) && mark.error) end(mark.error);
}

void BackgroundSave::give_checksums(std::vector<uint64_t> checksums) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    checksums_ = std::move(checksums);
  }
  changed_.notify_all();
}

// What the ranks say of their pieces, by their marks or as the collective end has heard it.
void BackgroundSave::collect(std::optional<Error>* failed) {
  for (int32_t rank = 0; rank < job_.manifest.world_size; ++rank) {
    uint64_t& checksum = job_.manifest.pieces[static_cast<size_t>(rank)].table_checksum;
    if (rank == job_.rank) {
      checksum = table_checksum_;
      continue;
    }
    SaveMark mark;
    auto state = SaveMarks::State::kSilent;
    const bool heard = poll([&] {
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (!checksums_.empty()) {
          mark.table_checksum = checksums_[static_cast<size_t>(rank)];
          state = SaveMarks::State::kSaid;
          return true;
        }
      }
      state = job_.marks.read(rank, &mark);
      return state != SaveMarks::State::kSilent;
    });
    if (!heard) {
      *failed = Error(ZERO_ERR_INVALID_STATE, "the save was given up: the runtime has ended");
    } else if (state == SaveMarks::State::kEnded) {
      *failed = Error(ZERO_ERR_IO,
                      format("rank %d has ended without a word, or can neither write to \"%s\" nor "
                             "remove anything there",
                             rank, job_.staging.folder().c_str()),
                      rank);
    } else if (state == SaveMarks::State::kWithdrawn) {
      *failed = Error(ZERO_ERR_IO,
                      format("rank %d cannot write to \"%s\", and so not say how its piece went",
                             rank, job_.staging.folder().c_str()),
                      rank);
    } else if (mark.error) {
      *failed = of_rank(*mark.error, rank);
    }
    if (*failed) return;
    checksum = mark.table_checksum;
  }
}

// Rank 0: all pieces, the whole, everybody has heard of it.
void BackgroundSave::lead() {
  const int32_t ranks = job_.manifest.world_size;
  std::optional<Error> own = piece_error_, others;
  if (!own) {
    own = error_of([&] {
      collect(&others);
      if (!others) job_.publish(job_.manifest);
    });
  }
  SaveMark verdict;
  if (own) verdict.error = of_rank(*own, 0);
  if (others) verdict.error = others;
  if (ranks > 1) job_.marks.put(verdict);
  end(others ? others : own);
  error_of([&] {
    SaveMark ignored;
    for (int32_t rank = 1; rank < ranks; ++rank) {
      const auto seen = [&] {
        const SaveMarks::State state = job_.marks.read(rank, &ignored);
        return state == SaveMarks::State::kWithdrawn || state == SaveMarks::State::kEnded;
      };
      if (!poll(seen)) break;
    }
  });
  job_.staging.remove();
}

// The verdict, or, where rank 0 could not give it, what path is now.
void BackgroundSave::follow() {
  SaveMark verdict;
  auto state = SaveMarks::State::kSilent;
  const std::optional<Error> broken = error_of([&] {
    poll([&] {
      state = job_.marks.read(0, &verdict);
      return state != SaveMarks::State::kSilent;
    });
    if (state != SaveMarks::State::kWithdrawn && state != SaveMarks::State::kEnded) return;
    poll([&] {
      if (!job_.staging.is_whole()) {
        verdict.error = Error(ZERO_ERR_IO, "rank 0 could not finish the save, nor say why", 0);
      }
      return true;
    });
  });
  if (state == SaveMarks::State::kSilent) {
    end(broken ? broken
               : Error(ZERO_ERR_INVALID_STATE, "the save was given up: the runtime has ended"));
    return;
  }
  std::optional<Error> failed = broken ? broken : verdict.error;
  if (failed && piece_error_) failed = piece_error_; // in its own words
  end(failed);
  job_.marks.withdraw();
}

void BackgroundSave::run() {
  write_piece();
  if (job_.rank == 0) {
    lead();
  } else if (!ended()) {
    follow();
  }
}

} // namespace zero::engine
