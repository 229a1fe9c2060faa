// zero.h, section 11: checkpoints.
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

void zero_save_options_init(zero_save_options* options, uint32_t struct_size) {
  init_struct(options, struct_size, zero_save_options{});
}

void zero_load_options_init(zero_load_options* options, uint32_t struct_size) {
  init_struct(options, struct_size, zero_load_options{});
}

void zero_checkpoint_info_init(zero_checkpoint_info* info, uint32_t struct_size) {
  zero_checkpoint_info defaults{};
  defaults.loss_scale = 1;
  init_struct(info, struct_size, defaults);
}

void zero_progress_init(zero_progress* progress, uint32_t struct_size) {
  init_struct(progress, struct_size, zero_progress{});
}

zero_status zero_checkpoint_save(zero_runtime* runtime, const char* path,
                                 const zero_save_options* options) {
  return guard_runtime(runtime, [&](Runtime&) {
    require(path, "path");
    if (options != nullptr) read_struct(options, "options", zero_save_options{});
    not_yet("zero_checkpoint_save");
  });
}

zero_status zero_checkpoint_poll(zero_runtime* runtime, int32_t* done) {
  return guard_runtime(runtime, [&](Runtime&) {
    require(done, "done");
    not_yet("zero_checkpoint_poll");
  });
}

zero_status zero_checkpoint_wait(zero_runtime* runtime) {
  return guard_runtime(runtime, [&](Runtime&) { not_yet("zero_checkpoint_wait"); });
}

zero_status zero_checkpoint_put(zero_runtime* runtime, const char* key, const void* bytes,
                                uint64_t count) {
  return guard_runtime(runtime, [&](Runtime&) {
    require(key, "key");
    if (count > 0) require(bytes, "bytes");
    not_yet("zero_checkpoint_put");
  });
}

zero_status zero_checkpoint_open(const char* path, zero_checkpoint** checkpoint) {
  return guard([&] {
    require(path, "path");
    require(checkpoint, "checkpoint");
    not_yet("zero_checkpoint_open");
  });
}

void zero_checkpoint_destroy(zero_checkpoint*) {}

zero_status zero_checkpoint_describe(const zero_checkpoint* checkpoint,
                                     zero_checkpoint_info* info) {
  return guard([&] {
    require(checkpoint, "checkpoint");
    check_struct_size(info, "info");
    not_yet("zero_checkpoint_describe");
  });
}

zero_status zero_checkpoint_param_at(const zero_checkpoint* checkpoint, int64_t,
                                     zero_param_info* info) {
  return guard([&] {
    require(checkpoint, "checkpoint");
    check_struct_size(info, "info");
    not_yet("zero_checkpoint_param_at");
  });
}

zero_status zero_checkpoint_param_steps(const zero_checkpoint* checkpoint, int64_t,
                                        int64_t* steps) {
  return guard([&] {
    require(checkpoint, "checkpoint");
    require(steps, "steps");
    not_yet("zero_checkpoint_param_steps");
  });
}

zero_status zero_checkpoint_text(const zero_checkpoint* checkpoint, char*, uint64_t,
                                 uint64_t* length) {
  return guard([&] {
    require(checkpoint, "checkpoint");
    require(length, "length");
    not_yet("zero_checkpoint_text");
  });
}

zero_status zero_checkpoint_read(const zero_checkpoint* checkpoint, const char* name, zero_part,
                                 int32_t, uint64_t, uint64_t, void* values, uint64_t bytes) {
  return guard([&] {
    require(checkpoint, "checkpoint");
    require(name, "name");
    if (bytes > 0) require(values, "values");
    not_yet("zero_checkpoint_read");
  });
}

zero_status zero_checkpoint_get(const zero_checkpoint* checkpoint, int32_t, const char* key,
                                void* bytes, uint64_t capacity, uint64_t* count) {
  return guard([&] {
    require(checkpoint, "checkpoint");
    require(key, "key");
    require(count, "count");
    if (capacity > 0) require(bytes, "bytes");
    not_yet("zero_checkpoint_get");
  });
}

zero_status zero_checkpoint_progress(zero_checkpoint* checkpoint, const zero_progress*) {
  return guard([&] {
    require(checkpoint, "checkpoint");
    not_yet("zero_checkpoint_progress");
  });
}

zero_status zero_checkpoint_verify(zero_checkpoint* checkpoint) {
  return guard([&] {
    require(checkpoint, "checkpoint");
    not_yet("zero_checkpoint_verify");
  });
}

zero_status zero_checkpoint_reshard(zero_checkpoint* checkpoint, const char* path, int32_t) {
  return guard([&] {
    require(checkpoint, "checkpoint");
    require(path, "path");
    not_yet("zero_checkpoint_reshard");
  });
}

zero_status zero_checkpoint_load(zero_runtime* runtime, const zero_checkpoint* checkpoint,
                                 const zero_load_options* options) {
  return guard_runtime(runtime, [&](Runtime&) {
    require(checkpoint, "checkpoint");
    if (options != nullptr) read_struct(options, "options", zero_load_options{});
    not_yet("zero_checkpoint_load");
  });
}
