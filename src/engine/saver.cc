// SPDX-License-Identifier: BSD-3-Clause
#include "engine/saver.h"

#include <algorithm>
#include <cstring>

#include "base/file.h"
#include "checkpoint/piece_layout.h"
#include "checkpoint/piece_writer.h"
#include "engine/agreement.h"
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
  kWhole = 106
};

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

void Saver::write_own_piece(const checkpoint::Staging& staging, checkpoint::Manifest* manifest) {
  const StateRanges state(context_);
  const checkpoint::Source source = [&](const checkpoint::PieceItem& item, uint64_t offset,
                                        uint64_t count, std::byte* out) {
    if (item.parameter < 0) {
      const std::string& key = manifest->blobs[static_cast<size_t>(item.part)].key;
      std::memcpy(out, blobs_.at(key)->data() + offset, count);
      return;
    }
    const checkpoint::StoredPart& part = manifest->parameters[static_cast<size_t>(item.parameter)]
                                             .parts[static_cast<size_t>(item.part)];
    state.read(item.parameter, part.kind, part.index, offset, count, out);
  };
  const int32_t rank = context_.rank();
  const checkpoint::PieceSummary written =
      checkpoint::write_piece(staging.piece(rank), *manifest, rank, source);
  manifest->pieces[static_cast<size_t>(rank)].table_checksum = written.table_checksum;
}

// Rank 0, when the checkpoint is whole.
void Saver::finish(const std::string& path, const SaveOptions& options,
                   const checkpoint::Staging& staging, const checkpoint::Manifest& manifest) {
  staging.commit(manifest, options.replace);
  if (!options.latest.empty()) checkpoint::point_latest(path, options.latest);
  try {
    checkpoint::apply_retention(path, run_, options.keep_last, options.keep_every, options.latest);
  } catch (const Error& error) {
    // The new one is whole; that an old one stays is no reason to end a run.
    context_.log.write(ZERO_LOG_WARN, "an old checkpoint could not be deleted: " + error.message());
  }
}

void Saver::save(const std::string& path, const SaveOptions& options) {
  comm::Communicator& comm = *context_.comm;
  const bool first = context_.rank() == 0;
  agree_on_call(path, options);
  context_.sequence->drain();
  checkpoint::Manifest manifest;
  together(comm, kDescribed, [&] { manifest = describe(options.weights_only); });
  agree_on_ids(&manifest);
  if (!options.weights_only) gather_blobs(&manifest);
  checkpoint::place_ranges(&manifest);
  const checkpoint::Staging staging(path, manifest.id);
  try {
    together(comm, kCreated, [&] {
      if (first) staging.create(options.replace, run_);
    });
    together(comm, kShared, [&] {
      if (!first) staging.check_token(context_.rank());
    });
    together(comm, kWritten, [&] { write_own_piece(staging, &manifest); });
    const uint64_t mine = manifest.pieces[static_cast<size_t>(context_.rank())].table_checksum;
    std::vector<uint64_t> checksums(manifest.pieces.size());
    comm.all_gather(comm::Channel::kControl,
                    context_.sequence->control(comm::Operation::kAllGather, sizeof(mine)), &mine,
                    checksums.data(), sizeof(mine));
    for (size_t i = 0; i < checksums.size(); ++i) manifest.pieces[i].table_checksum = checksums[i];
    together(comm, kWhole, [&] {
      if (first) finish(path, options, staging, manifest);
    });
  } catch (...) {
    if (first) staging.remove();
    throw;
  }
  if (first) staging.remove();
}

bool Saver::poll() {
  return true;
}

void Saver::wait() {}

} // namespace zero::engine
