// zero.h, section 11: weights in and out, and the checkpoints of others.
// SPDX-License-Identifier: BSD-3-Clause
#include "api/checkpoint_progress.h"
#include "api/growing.h"
#include "api/handles.h"
#include "checkpoint/checkpoint_export.h"
#include "checkpoint/deepspeed_import.h"

using namespace zero::api; // the C functions below are outside of any namespace
using zero::engine::Runtime;

namespace {

// What a callback answers ends the call.
std::function<void(uint64_t, uint64_t)> reporter(const zero_progress& progress) {
  if (progress.report == nullptr) return {};
  return [progress](uint64_t done, uint64_t total) {
    const zero_status status = progress.report(progress.user_data, done, total);
    if (status == ZERO_OK) return;
    const std::string said = take_callback_message();
    throw zero::Error(status, said.empty() ? "the progress callback ended the call" : said, -1, 0,
                      "callback");
  };
}

} // namespace

zero_status zero_weights_export(zero_runtime* runtime, const char* path, zero_dtype dtype,
                                uint64_t max_file_bytes) {
  return guard_runtime(runtime, [&](Runtime& engine) {
    require(path, "path");
    engine.weights("zero_weights_export").write(path, dtype, max_file_bytes);
  });
}

zero_status zero_weights_import(zero_runtime* runtime, const char* path,
                                const zero_load_options* options) {
  return guard_runtime(runtime, [&](Runtime& engine) {
    require(path, "path");
    const zero_load_options given = options == nullptr
                                        ? zero_load_options{}
                                        : read_struct(options, "options", zero_load_options{});
    engine.weights("zero_weights_import")
        .read(path, given.allow_missing != 0, given.allow_extra != 0);
  });
}

zero_status zero_checkpoint_export(zero_checkpoint* checkpoint, const char* path, zero_dtype dtype,
                                   uint64_t max_file_bytes) {
  return guard([&] {
    require(checkpoint, "checkpoint");
    require(path, "path");
    const zero::checkpoint::CheckpointReader& reader = checkpoint->reader;
    zero::checkpoint::export_checkpoint(
        reader, path, dtype, max_file_bytes,
        progress_of(checkpoint->progress, zero::checkpoint::export_bytes(reader, dtype)));
  });
}

zero_status zero_checkpoint_import_deepspeed(const char* folder, const char* path,
                                             int32_t world_size, const zero_progress* progress) {
  return guard([&] {
    require(folder, "folder");
    require(path, "path");
    const zero_progress told =
        progress == nullptr ? zero_progress{} : read_struct(progress, "progress", zero_progress{});
    zero::checkpoint::import_deepspeed(folder, path, world_size, reporter(told));
  });
}
