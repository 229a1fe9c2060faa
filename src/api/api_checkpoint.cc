// zero.h, section 11: checkpoints.
// SPDX-License-Identifier: BSD-3-Clause
#include <cstring>

#include "api/api_values.h"
#include "api/checkpoint_progress.h"
#include "api/growing.h"
#include "api/handles.h"
#include "base/dtype.h"
#include "checkpoint/checkpoint_text.h"
#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/element_cast.h"

using namespace zero::api; // the C functions below are outside of any namespace
using zero::dtype_bytes;
using zero::fail;
using zero::checkpoint::CheckpointReader;
using zero::checkpoint::Manifest;
using zero::checkpoint::StoredParameter;
using zero::checkpoint::StoredPart;
using zero::engine::Runtime;

namespace {

const StoredParameter& parameter_at(const zero_checkpoint* checkpoint, int64_t index) {
  const auto& parameters = checkpoint->reader.manifest().parameters;
  if (index < 0 || static_cast<uint64_t>(index) >= parameters.size()) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "index is %lld, but the checkpoint has %zu parameters",
         static_cast<long long>(index), parameters.size());
  }
  return parameters[static_cast<size_t>(index)];
}

zero::engine::SaveOptions save_options(const zero_save_options* options) {
  zero::engine::SaveOptions to;
  if (options == nullptr) return to;
  const zero_save_options from = read_struct(options, "options", zero_save_options{});
  to.replace = from.replace != 0;
  to.in_background = from.in_background != 0;
  to.weights_only = from.weights_only != 0;
  to.keep_last = from.keep_last;
  to.keep_every = from.keep_every;
  if (from.latest != nullptr) to.latest = from.latest;
  return to;
}

// What is stored of the part that is asked for: a value may be its master, rounded.
int32_t stored_part(const Manifest& manifest, int32_t row, zero_part part, int32_t index) {
  const char* name = manifest.parameters[static_cast<size_t>(row)].name.c_str();
  if (part < ZERO_PART_VALUE || part > ZERO_PART_STATE || part == ZERO_PART_GRAD) {
    fail(ZERO_ERR_INVALID_ARGUMENT,
         "part is %d, expected 0, 2 or 3 (VALUE, MASTER, STATE): no gradient is in a checkpoint",
         part);
  }
  int32_t found = manifest.find_part(row, part, index);
  if (found < 0 && part == ZERO_PART_VALUE && index == 0) {
    found = manifest.find_part(row, ZERO_PART_MASTER, 0);
  }
  if (found < 0) {
    fail(ZERO_ERR_NOT_FOUND, "param \"%s\" has no part %d of index %d in this checkpoint", name,
         part, index);
  }
  return found;
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
  return guard_runtime(runtime, [&](Runtime& engine) {
    require(path, "path");
    engine.saver("zero_checkpoint_save").save(path, save_options(options));
  });
}

zero_status zero_checkpoint_poll(zero_runtime* runtime, int32_t* done) {
  return guard_runtime(runtime, [&](Runtime& engine) {
    require(done, "done");
    *done = engine.saver("zero_checkpoint_poll").poll() ? 1 : 0;
  });
}

zero_status zero_checkpoint_wait(zero_runtime* runtime) {
  return guard_runtime(runtime,
                       [&](Runtime& engine) { engine.saver("zero_checkpoint_wait").wait(); });
}

zero_status zero_checkpoint_put(zero_runtime* runtime, const char* key, const void* bytes,
                                uint64_t count) {
  return guard_runtime(runtime, [&](Runtime& engine) {
    require(key, "key");
    if (count > 0) require(bytes, "bytes");
    engine.saver("zero_checkpoint_put").put(key, bytes, count);
  });
}

zero_status zero_checkpoint_open(const char* path, zero_checkpoint** checkpoint) {
  return guard([&] {
    require(path, "path");
    require(checkpoint, "checkpoint");
    *checkpoint = new zero_checkpoint{CheckpointReader(path), {}, {}};
  });
}

void zero_checkpoint_destroy(zero_checkpoint* checkpoint) {
  delete checkpoint;
}

zero_status zero_checkpoint_describe(const zero_checkpoint* checkpoint,
                                     zero_checkpoint_info* info) {
  return guard([&] {
    require(checkpoint, "checkpoint");
    check_struct_size(info, "info");
    const Manifest& manifest = checkpoint->reader.manifest();
    zero_checkpoint_info out{};
    out.format_version = static_cast<int32_t>(manifest.format_version);
    out.step = manifest.step;
    out.skipped_total = manifest.skipped_total;
    out.loss_scale = manifest.has_loss_scale ? manifest.loss_scale.scale : 1;
    out.world_size = manifest.world_size;
    out.stage = manifest.stage;
    out.param_count = static_cast<int64_t>(manifest.parameters.size());
    out.bytes = checkpoint->reader.bytes();
    out.weights_only = manifest.weights_only ? 1 : 0;
    out.state_count = static_cast<int32_t>(manifest.state_names.size());
    write_struct(info, out);
  });
}

zero_status zero_checkpoint_param_at(const zero_checkpoint* checkpoint, int64_t index,
                                     zero_param_info* info) {
  return guard([&] {
    require(checkpoint, "checkpoint");
    check_struct_size(info, "info");
    write_struct(info, param_info(parameter_at(checkpoint, index)));
  });
}

zero_status zero_checkpoint_param_steps(const zero_checkpoint* checkpoint, int64_t index,
                                        int64_t* steps) {
  return guard([&] {
    require(checkpoint, "checkpoint");
    require(steps, "steps");
    *steps = parameter_at(checkpoint, index).steps;
  });
}

zero_status zero_checkpoint_text(const zero_checkpoint* checkpoint, char* buffer, uint64_t capacity,
                                 uint64_t* length) {
  return guard([&] {
    require(checkpoint, "checkpoint");
    write_text(zero::checkpoint::checkpoint_text(checkpoint->reader, checkpoint->damages), buffer,
               capacity, length);
  });
}

zero_status zero_checkpoint_read(const zero_checkpoint* checkpoint, const char* name,
                                 zero_part part, int32_t index, uint64_t offset, uint64_t count,
                                 void* values, uint64_t bytes) {
  return guard([&] {
    require(checkpoint, "checkpoint");
    require(name, "name");
    if (bytes > 0) require(values, "values");
    const CheckpointReader& reader = checkpoint->reader;
    const Manifest& manifest = reader.manifest();
    const int32_t row = reader.names().find(name);
    if (row < 0) fail(ZERO_ERR_NOT_FOUND, "param \"%s\" is not in this checkpoint", name);
    const int32_t stored = stored_part(manifest, row, part, index);
    const StoredParameter& root = manifest.parameters[static_cast<size_t>(manifest.root_of(row))];
    const zero_dtype from = root.parts[static_cast<size_t>(stored)].dtype;
    const zero_dtype to = part == ZERO_PART_VALUE ? root.dtype : ZERO_DTYPE_FP32;
    if (count > root.elements || bytes != count * dtype_bytes(to)) {
      fail(ZERO_ERR_INVALID_ARGUMENT,
           "param \"%s\": bytes is %llu for %llu elements, expected %llu for each of %llu", name,
           static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(count),
           static_cast<unsigned long long>(dtype_bytes(to)),
           static_cast<unsigned long long>(root.elements));
    }
    auto* out = static_cast<std::byte*>(values);
    if (from == to) {
      reader.read(row, stored, offset, count, out);
      return;
    }
    std::vector<std::byte> kept(count * dtype_bytes(from));
    reader.read(row, stored, offset, count, kept.data());
    zero::checkpoint::cast_elements(kept.data(), from, out, to, count);
  });
}

zero_status zero_checkpoint_get(const zero_checkpoint* checkpoint, int32_t rank, const char* key,
                                void* bytes, uint64_t capacity, uint64_t* count) {
  return guard([&] {
    require(checkpoint, "checkpoint");
    require(key, "key");
    require(count, "count");
    if (capacity > 0) require(bytes, "bytes");
    const CheckpointReader& reader = checkpoint->reader;
    const int32_t number = reader.find_blob(rank, key);
    if (number < 0) {
      fail(ZERO_ERR_NOT_FOUND, "rank %d put nothing under \"%s\" into this checkpoint", rank, key);
    }
    const uint64_t size = reader.manifest().blobs[static_cast<size_t>(number)].bytes;
    if (capacity != 0 && capacity < size) {
      *count = size;
      fail(ZERO_ERR_BUFFER_TOO_SMALL, "capacity is %llu, expected at least %llu",
           static_cast<unsigned long long>(capacity), static_cast<unsigned long long>(size));
    }
    if (capacity != 0) {
      const std::string blob = reader.read_blob(number);
      std::memcpy(bytes, blob.data(), blob.size());
    }
    *count = size;
  });
}

zero_status zero_checkpoint_progress(zero_checkpoint* checkpoint, const zero_progress* progress) {
  return guard([&] {
    require(checkpoint, "checkpoint");
    zero_progress given{};
    if (progress != nullptr) {
      given = read_struct(progress, "progress", given);
      require(reinterpret_cast<const void*>(given.report), "progress->report");
    }
    checkpoint->progress = given;
  });
}

zero_status zero_checkpoint_verify(zero_checkpoint* checkpoint) {
  return guard([&] {
    require(checkpoint, "checkpoint");
    uint64_t total = 0;
    for (const auto& piece : checkpoint->reader.manifest().pieces) {
      total += piece.table_position - zero::checkpoint::kPieceHeaderBytes;
    }
    checkpoint->damages.clear();
    checkpoint->damages = checkpoint->reader.verify(progress_of(checkpoint->progress, total));
    if (checkpoint->damages.empty()) return;
    const size_t more = checkpoint->damages.size() - 1;
    std::string said = zero::checkpoint::damage_text(checkpoint->damages.front());
    if (more > 0) said += "; and " + std::to_string(more) + " more";
    throw zero::Error(ZERO_ERR_FILE_CORRUPT, said);
  });
}

zero_status zero_checkpoint_reshard(zero_checkpoint* checkpoint, const char* path,
                                    int32_t world_size) {
  return guard([&] {
    require(checkpoint, "checkpoint");
    require(path, "path");
    const CheckpointReader& reader = checkpoint->reader;
    const Manifest& from = reader.manifest();
    const zero::checkpoint::Source source = [&](const zero::checkpoint::PieceItem& item,
                                                uint64_t offset, uint64_t count, std::byte* out) {
      if (item.parameter >= 0) {
        reader.read(item.parameter, item.part, offset, count, out);
      } else {
        const std::string blob = reader.read_blob(item.part);
        std::memcpy(out, blob.data() + offset, count);
      }
    };
    zero::checkpoint::write_checkpoint(
        path, from, world_size, source,
        progress_of(checkpoint->progress, zero::checkpoint::checkpoint_bytes(from, world_size)));
  });
}

zero_status zero_checkpoint_load(zero_runtime* runtime, const zero_checkpoint* checkpoint,
                                 const zero_load_options* options) {
  return guard_runtime(runtime, [&](Runtime& engine) {
    require(checkpoint, "checkpoint");
    const zero_load_options given = options == nullptr
                                        ? zero_load_options{}
                                        : read_struct(options, "options", zero_load_options{});
    engine.loader("zero_checkpoint_load")
        .load(checkpoint->reader,
              {given.weights_only != 0, given.allow_missing != 0, given.allow_extra != 0});
  });
}
