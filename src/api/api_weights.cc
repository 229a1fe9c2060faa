// zero.h, section 11: weights in and out, and the checkpoints of others.
// SPDX-License-Identifier: BSD-3-Clause
#include "api/growing.h"
#include "api/handles.h"

using namespace zero::api; // the C functions below are outside of any namespace
using zero::fail;
using zero::engine::Runtime;

namespace {

[[noreturn]] void not_yet(const char* call) {
  fail(ZERO_ERR_UNSUPPORTED, "%s is not in this build", call);
}

} // namespace

zero_status zero_weights_export(zero_runtime* runtime, const char* path, zero_dtype, uint64_t) {
  return guard_runtime(runtime, [&](Runtime&) {
    require(path, "path");
    not_yet("zero_weights_export");
  });
}

zero_status zero_weights_import(zero_runtime* runtime, const char* path,
                                const zero_load_options* options) {
  return guard_runtime(runtime, [&](Runtime&) {
    require(path, "path");
    if (options != nullptr) read_struct(options, "options", zero_load_options{});
    not_yet("zero_weights_import");
  });
}

zero_status zero_checkpoint_export(zero_checkpoint* checkpoint, const char* path, zero_dtype,
                                   uint64_t) {
  return guard([&] {
    require(checkpoint, "checkpoint");
    require(path, "path");
    not_yet("zero_checkpoint_export");
  });
}

zero_status zero_checkpoint_import_deepspeed(const char* folder, const char* path, int32_t,
                                             const zero_progress* progress) {
  return guard([&] {
    require(folder, "folder");
    require(path, "path");
    if (progress != nullptr) read_struct(progress, "progress", zero_progress{});
    not_yet("zero_checkpoint_import_deepspeed");
  });
}
