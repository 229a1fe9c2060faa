// SPDX-License-Identifier: BSD-3-Clause
#include "engine/saver.h"

#include <algorithm>
#include <cstring>

#include "base/file.h"
#include "checkpoint/piece_layout.h"
#include "checkpoint/piece_writer.h"
#include "checkpoint/quiet_thread.h"
#include "engine/agreement.h"
#include "engine/state_copy.h"
#include "engine/state_ranges.h"
#include "engine/stored_state.h"

namespace zero::engine {
namespace {

// Which agreement of zero_checkpoint_save this is.
enum Step : uint64_t {
  kMaySave = 100,
  kCalls = 101,
  kDescribed = 102,
  kCreated = 103,
  kShared = 104,
  kWritten = 105,
  kWhole = 106,
  kCopied = 107,
  kPieces = 108,
  kEnded = 109,
  kMarked = 110
};

// Rank 0, when all pieces are written.
void make_whole(const std::string& path, const SaveOptions& options,
                const checkpoint::Staging& staging, const checkpoint::Manifest& manifest,
                uint64_t run, Log* log) {
  staging.commit(manifest, options.replace);
  if (!options.latest.empty()) checkpoint::point_latest(path, options.latest);
  try {
    checkpoint::apply_retention(path, run, options.keep_last, options.keep_every, options.latest);
  } catch (const Error& error) {
    // The new one is whole; that an old one stays is no reason to end a run.
    log->write(ZERO_LOG_WARN, "an old checkpoint could not be deleted: " + error.message());
  }
}

} // namespace

void check_between_steps(const GradientReducer& reducer, const ParameterLoans& loans,
                         const Stepper& stepper, const char* call) {
  if (stepper.between_begin_and_end()) {
    fail(ZERO_ERR_INVALID_STATE, "%s: a step has begun, expected zero_step_end before", call);
  }
  if (loans.open_loans() > 0) {
    fail(ZERO_ERR_INVALID_STATE,
         "%s: parameters are still on loan: %s; expected zero_params_release before", call,
         loans.open_text().c_str());
  }
  if (reducer.micro_batch_open() || reducer.micro_batches() > 0) {
    fail(ZERO_ERR_INVALID_STATE,
         "%s: micro-batch %lld of a step is %s, and gradients are in no checkpoint; expected "
         "zero_step (or zero_grads_clear) before",
         call,
         static_cast<long long>(reducer.micro_batches() + (reducer.micro_batch_open() ? 1 : 0)),
         reducer.micro_batch_open() ? "open" : "done");
  }
}

Saver::Saver(Context& context, GradientReducer& reducer, ParameterLoans& loans, Stepper& stepper,
             std::string config)
    : context_(context),
      reducer_(reducer),
      loans_(loans),
      stepper_(stepper),
      config_(std::move(config)) {}

void Saver::put(const std::string& key, const void* bytes, uint64_t count) {
  if (key.empty()) fail(ZERO_ERR_INVALID_ARGUMENT, "key is \"\", expected a name");
  if (count == 0) {
    blobs_.erase(key);
    return;
  }
  blobs_[key] = std::make_shared<const std::string>(static_cast<const char*>(bytes), count);
}

void Saver::check_options(const std::string& path, const SaveOptions& options) const {
  if (path.empty()) fail(ZERO_ERR_INVALID_ARGUMENT, "path is \"\", expected a folder to make");
  if (options.keep_last < 0 || options.keep_every < 0) {
    fail(ZERO_ERR_INVALID_ARGUMENT,
         "options.keep_last is %d and keep_every %d, expected 0 or more of each", options.keep_last,
         options.keep_every);
  }
  if (options.in_background && context_.storage->checkpoint_staging() == nullptr) {
    fail(ZERO_ERR_INVALID_STATE,
         "options.in_background is 1, expected \"libzero\": {\"checkpoint_background\": true} in "
         "the config, so that the staging memory is planned");
  }
  const std::string& latest = options.latest;
  if (latest.find('/') != std::string::npos || latest == "." || latest == ".." ||
      (!latest.empty() && latest == base_name(path))) {
    fail(ZERO_ERR_INVALID_ARGUMENT,
         "options.latest is \"%s\", expected the name of a file beside \"%s\", or NULL",
         latest.c_str(), path.c_str());
  }
}

void Saver::agree_on_call(const std::string& path, const SaveOptions& options) {
  together(*context_.comm, kMaySave, [&] {
    check_between_steps(reducer_, loans_, stepper_, "zero_checkpoint_save");
    check_options(path, options);
  });
  agree_on_lines(*context_.comm, kCalls, "saves",
                 {"path \"" + path + "\"",
                  format("replace %d, in_background %d, weights_only %d, keep_last %d, keep_every "
                         "%d, latest \"%s\"",
                         options.replace, options.in_background, options.weights_only,
                         options.keep_last, options.keep_every, options.latest.c_str()),
                  format("step %lld", static_cast<long long>(stepper_.steps()))});
}

// Rank 0's.
void Saver::agree_on_ids(checkpoint::Manifest* manifest) {
  uint64_t ids[2] = {checkpoint::random_id(), run_ != 0 ? run_ : checkpoint::random_id()};
  context_.comm->broadcast(comm::Channel::kControl,
                           context_.sequence->control(comm::Operation::kBroadcast, sizeof(ids)),
                           ids, sizeof(ids), 0);
  manifest->id = ids[0];
  manifest->run = run_ = ids[1];
}

// Keys and sizes of all ranks; the bytes stay where they are.
void Saver::gather_blobs(checkpoint::Manifest* manifest) {
  std::string mine;
  for (const auto& [key, bytes] : blobs_) {
    const uint64_t sizes[2] = {key.size(), bytes->size()};
    mine.append(reinterpret_cast<const char*>(sizes), sizeof(sizes));
    mine += key;
  }
  const auto ranks = static_cast<size_t>(context_.ranks());
  const uint64_t length = mine.size();
  std::vector<uint64_t> lengths(ranks);
  context_.comm->all_gather(comm::Channel::kControl,
                            context_.sequence->control(comm::Operation::kAllGather, sizeof(length)),
                            &length, lengths.data(), sizeof(length));
  const uint64_t longest = *std::max_element(lengths.begin(), lengths.end());
  if (longest == 0) return;
  mine.resize(longest);
  std::string all(longest * ranks, '\0');
  context_.comm->all_gather(comm::Channel::kControl,
                            context_.sequence->control(comm::Operation::kAllGather, longest),
                            mine.data(), all.data(), longest);
  for (size_t r = 0; r < ranks; ++r) {
    const char* at = all.data() + r * longest;
    const char* const end = at + lengths[r];
    while (at < end) {
      uint64_t sizes[2];
      std::memcpy(sizes, at, sizeof(sizes));
      at += sizeof(sizes);
      checkpoint::StoredBlob blob;
      blob.key.assign(at, sizes[0]);
      blob.bytes = sizes[1];
      blob.rank = blob.piece = static_cast<int32_t>(r);
      at += sizes[0];
      manifest->blobs.push_back(std::move(blob));
    }
  }
}

checkpoint::Manifest Saver::describe(bool weights_only) {
  checkpoint::Manifest manifest = describe_state(context_, stepper_, weights_only);
  manifest.config = config_;
  return manifest;
}

// Where the bytes of an item come from while nobody trains.
checkpoint::Source Saver::live_state(const checkpoint::Manifest& manifest) const {
  return [this, &manifest](const checkpoint::PieceItem& item, uint64_t offset, uint64_t count,
                           std::byte* out) {
    if (item.parameter < 0) {
      const std::string& key = manifest.blobs[static_cast<size_t>(item.part)].key;
      std::memcpy(out, blobs_.at(key)->data() + offset, count);
      return;
    }
    const checkpoint::StoredPart& part = manifest.parameters[static_cast<size_t>(item.parameter)]
                                             .parts[static_cast<size_t>(item.part)];
    StateRanges(context_).read(item.parameter, part.kind, part.index, offset, count, out);
  };
}

void Saver::write_now(const checkpoint::Staging& staging, checkpoint::Manifest* manifest,
                      const std::function<void(const checkpoint::Manifest&)>& publish) {
  comm::Communicator& comm = *context_.comm;
  const int32_t rank = context_.rank();
  uint64_t mine = 0;
  together(comm, kWritten, [&] {
    mine = checkpoint::write_piece(staging.piece(rank), *manifest, rank, live_state(*manifest))
               .table_checksum;
  });
  std::vector<uint64_t> checksums(manifest->pieces.size());
  comm.all_gather(comm::Channel::kControl,
                  context_.sequence->control(comm::Operation::kAllGather, sizeof(mine)), &mine,
                  checksums.data(), sizeof(mine));
  for (size_t i = 0; i < checksums.size(); ++i) manifest->pieces[i].table_checksum = checksums[i];
  together(comm, kWhole, [&] {
    if (rank == 0) publish(*manifest);
  });
}

// The disk takes its time too: both at once.
void Saver::copy_beside(const std::function<void()>& work,
                        const checkpoint::Manifest& manifest) const {
  std::exception_ptr failure;
  std::thread thread = checkpoint::start_quiet_thread([&] {
    try {
      work();
    } catch (...) {
      failure = std::current_exception();
    }
  });
  try {
    copy_state(context_, manifest);
  } catch (...) {
    thread.join();
    throw;
  }
  thread.join();
  if (failure) std::rethrow_exception(failure);
}

checkpoint::Source Saver::copied_state(const checkpoint::Manifest& manifest) const {
  std::vector<std::shared_ptr<const std::string>> blobs;
  for (const checkpoint::StoredBlob& blob : manifest.blobs) {
    blobs.push_back(blob.rank == context_.rank() ? blobs_.at(blob.key) : nullptr);
  }
  const std::byte* const copy = context_.storage->checkpoint_staging();
  return [copy, blobs](const checkpoint::PieceItem& item, uint64_t offset, uint64_t count,
                       std::byte* out) {
    if (item.parameter < 0) {
      std::memcpy(out, blobs[static_cast<size_t>(item.part)]->data() + offset, count);
      return;
    }
    const uint64_t size = item.bytes / item.count;
    std::memcpy(
        out, copy + (item.position - checkpoint::kPieceHeaderBytes) + (offset - item.offset) * size,
        count * size);
  };
}

void Saver::save(const std::string& path, const SaveOptions& options) {
  comm::Communicator& comm = *context_.comm;
  const bool first = context_.rank() == 0;
  wait();
  agree_on_call(path, options);
  context_.sequence->drain();
  checkpoint::Manifest manifest;
  together(comm, kDescribed, [&] { manifest = describe(options.weights_only); });
  agree_on_ids(&manifest);
  if (!options.weights_only) gather_blobs(&manifest);
  checkpoint::place_ranges(&manifest);
  const checkpoint::Staging staging(path, manifest.id);
  const auto publish = [path, options, staging, run = run_,
                        log = &context_.log](const checkpoint::Manifest& whole) {
    make_whole(path, options, staging, whole, run, log);
  };
  try {
    together(comm, kCreated, [&] {
      const auto create = [&] {
        if (first) staging.create(options.replace, run_);
      };
      if (options.in_background) {
        copy_beside(create, manifest);
      } else {
        create();
      }
    });
    checkpoint::SaveMarks marks(staging.folder(), context_.rank());
    together(comm, kShared, [&] {
      if (!first) staging.check_token(context_.rank());
      if (options.in_background && context_.ranks() > 1) marks.prepare();
    });
    if (!options.in_background) {
      write_now(staging, &manifest, publish);
    } else {
      together(comm, kMarked, [&] {
        if (context_.ranks() > 1) marks.look_for_locks(first ? context_.ranks() - 1 : 0);
      });
      together(comm, kCopied, [&] {
        checkpoint::Source source = copied_state(manifest);
        background_ = std::make_unique<BackgroundSave>(
            BackgroundSave::Job{staging, std::move(marks), std::move(manifest), context_.rank(),
                                std::move(source), publish});
      });
      return;
    }
  } catch (...) {
    background_.reset();
    if (first) staging.remove();
    throw;
  }
  if (first) staging.remove();
}

Saver::Memory Saver::idle_staging() const {
  if (background_) return {};
  return {context_.storage->checkpoint_staging(), context_.storage->checkpoint_staging_bytes()};
}

bool Saver::poll() const {
  if (!background_) return true;
  if (!background_->ended()) return false;
  if (const std::optional<Error> error = background_->error()) throw *error;
  return true;
}

// The ranks hear of each other's pieces here as well: a full disk may have no room for their marks.
void Saver::wait() {
  if (!background_) return;
  comm::Communicator& comm = *context_.comm;
  try {
    together(comm, kPieces, [&] {
      if (const std::optional<Error> error = background_->wait_for_piece()) throw *error;
    });
    const uint64_t mine = background_->table_checksum();
    std::vector<uint64_t> checksums(static_cast<size_t>(context_.ranks()));
    comm.all_gather(comm::Channel::kControl,
                    context_.sequence->control(comm::Operation::kAllGather, sizeof(mine)), &mine,
                    checksums.data(), sizeof(mine));
    together(comm, kEnded, [&] {
      if (context_.rank() != 0) return;
      background_->give_checksums(std::move(checksums));
      if (const std::optional<Error> error = background_->wait_for_end()) throw *error;
    });
  } catch (...) {
    background_.reset();
    throw;
  }
  background_.reset();
}

} // namespace zero::engine
