// SPDX-License-Identifier: BSD-3-Clause
#include "engine/weights_transfer.h"

#include <algorithm>
#include <cstring>

#include "base/dtype.h"
#include "engine/agreement.h"
#include "engine/loader.h"
#include "engine/master_weights.h"
#include "engine/saver.h"
#include "engine/weights_source.h"

namespace zero::engine {
namespace {

// Which agreement this is; behind those of zero_shard_params.
enum Step : uint64_t { kChecked = 60, kOpened = 61, kWritten = 62, kRead = 63, kSame = 64 };

constexpr const char* kNoMemory = "no memory to transfer weights";
constexpr uint64_t kPieceBytes = uint64_t{4} << 20;

bool is_float(zero_dtype dtype) {
  return dtype == ZERO_DTYPE_FP32 || is_16_bit_float(dtype);
}

// What a parameter is exported as.
zero_dtype export_dtype(const plan::Parameter& parameter, zero_dtype asked) {
  const bool convertible = parameter.role != ZERO_PARAM_BUFFER && is_float(parameter.dtype);
  return asked == 0 || !convertible ? parameter.dtype : asked;
}

} // namespace

void WeightsTransfer::write(const std::string& path, zero_dtype dtype, uint64_t max_file_bytes) {
  check_between_steps(reducer_, loans_, stepper_, "zero_weights_export");
  if (dtype != 0 && !is_float(dtype)) {
    fail(ZERO_ERR_INVALID_ARGUMENT,
         "zero_weights_export: dtype is %d, expected 0 (each its own), fp32, fp16 or bf16", dtype);
  }
  context_.sequence->drain();
  std::vector<checkpoint::SafetensorsTensor> tensors;
  std::vector<checkpoint::SafetensorsAlias> aliases;
  std::vector<zero_param_id> roots;
  checkpoint::SafetensorsLayout layout;
  std::optional<checkpoint::SafetensorsWriter> writer;
  const auto open = [&] {
    const std::vector<plan::Parameter>& parameters = context_.plan->model.parameters();
    for (size_t p = 0; p < parameters.size(); ++p) {
      const plan::Parameter& parameter = parameters[p];
      if (parameter.root != static_cast<zero_param_id>(p)) {
        aliases.push_back({parameter.name, context_.parameter(parameter.root).name});
        continue;
      }
      checkpoint::SafetensorsTensor tensor;
      tensor.name = parameter.name;
      tensor.dtype = export_dtype(parameter, dtype);
      tensor.shape = parameter.shape;
      tensor.bytes = parameter.elements * dtype_bytes(tensor.dtype);
      tensors.push_back(std::move(tensor));
      roots.push_back(static_cast<zero_param_id>(p));
    }
    layout = checkpoint::lay_out_safetensors(tensors, aliases, max_file_bytes);
    if (context_.rank() == 0) writer.emplace(path, layout, max_file_bytes != 0);
  };
  together(*context_.comm, kOpened, open, kNoMemory);
  std::optional<Error> failed;
  write_tensors(layout, roots, dtype, &writer, &failed);
  const auto finish = [&] {
    if (failed) throw *failed;
    if (writer) writer->finish();
  };
  together(*context_.comm, kWritten, finish, kNoMemory);
}

void WeightsTransfer::write_tensors(const checkpoint::SafetensorsLayout& layout,
                                    const std::vector<zero_param_id>& roots, zero_dtype dtype,
                                    std::optional<checkpoint::SafetensorsWriter>* writer,
                                    std::optional<Error>* failed) {
  for (const checkpoint::SafetensorsFile& file : layout.files) {
    for (const size_t t : file.tensors) {
      // A rank that cannot write goes on with the collectives: the others are in them.
      for_each_piece(roots[t], dtype, [&](const std::byte* bytes, uint64_t count) {
        if (!*writer || *failed) return;
        try {
          (*writer)->append(bytes, count);
        } catch (const Error& error) {
          *failed = error;
        }
      });
    }
  }
}

// take(bytes, count) on rank 0, in order, until the parameter is whole.
template <typename Take>
void WeightsTransfer::for_each_piece(zero_param_id root, zero_dtype asked, Take take) {
  const plan::Plan& plan = *context_.plan;
  const plan::Parameter& parameter = context_.parameter(root);
  const zero_dtype dtype = export_dtype(parameter, asked);
  const uint64_t size = dtype_bytes(dtype);
  const bool from_value = dtype == parameter.dtype || parameter.role != ZERO_PARAM_TRAINED;
  const bool whole =
      parameter.role == ZERO_PARAM_BUFFER ||
      (from_value ? !plan.placement.parameters_sharded : !plan.placement.optimizer_sharded);
  std::vector<std::byte> piece(std::min(kPieceBytes, parameter.elements * size));
  const uint64_t most = piece.size() / std::max<uint64_t>(size, 1);
  for (int32_t r = 0; r < (whole ? 1 : context_.ranks()); ++r) {
    const zero_span span = whole ? zero_span{0, parameter.elements} : plan.shard_span(root, r);
    for (uint64_t at = 0; at < span.count; at += most) {
      const uint64_t count = std::min(most, span.count - at);
      if (r == context_.rank()) {
        own_elements(root, dtype, span.offset + at, count, piece.data());
      }
      if (!whole) {
        context_.comm->broadcast(
            comm::Channel::kControl,
            context_.sequence->control(comm::Operation::kBroadcast, count * size), piece.data(),
            count * size, r);
      }
      if (context_.rank() == 0) take(piece.data(), count * size);
    }
  }
}

// Elements that this rank has, as dtype: the value, or the master where it is another type.
void WeightsTransfer::own_elements(zero_param_id root, zero_dtype dtype, uint64_t begin,
                                   uint64_t count, std::byte* out) {
  const plan::Parameter& parameter = context_.parameter(root);
  const plan::ParameterPlace& place = context_.plan->places[static_cast<size_t>(root)];
  const uint64_t size = dtype_bytes(parameter.dtype);
  if (dtype != parameter.dtype && parameter.role == ZERO_PARAM_TRAINED) {
    const uint64_t from = place.offset + begin;
    if (dtype == ZERO_DTYPE_FP32) {
      read_masters(context_, place.bucket, from, from + count, reinterpret_cast<float*>(out));
      return;
    }
    std::vector<float> masters(count);
    read_masters(context_, place.bucket, from, from + count, masters.data());
    context_.kernels->cast(masters.data(), ZERO_DTYPE_FP32, out, dtype, count);
    return;
  }
  const std::byte* value = context_.storage->whole_value(root);
  if (value != nullptr) {
    value += begin * size;
  } else {
    const plan::Bucket& bucket = context_.bucket(place.bucket);
    const uint64_t own = static_cast<uint64_t>(context_.rank()) * bucket.shard_elements;
    value = context_.storage->of_bucket(place.bucket).params +
            (bucket.shard_offset + place.offset + begin - own) * size;
  }
  if (dtype == parameter.dtype) {
    std::memcpy(out, value, count * size);
  } else {
    context_.kernels->cast(value, parameter.dtype, out, dtype, count);
  }
}

void WeightsTransfer::read(const std::string& path, bool allow_missing, bool allow_extra) {
  check_between_steps(reducer_, loans_, stepper_, "zero_weights_import");
  context_.sequence->drain();
  std::optional<WeightsSource> source;
  const auto check = [&] { source.emplace(path, *context_.plan, allow_missing, allow_extra); };
  together(*context_.comm, kChecked, check, kNoMemory);
  agree_on_lines(*context_.comm, kSame, "files of weights", source->lines());
  const auto take = [&] { source->read_into(context_, stepper_); };
  together(*context_.comm, kRead, take, kNoMemory);
  stepper_.gather_values();
  compare_parameters(context_, stepper_.steps());
}

} // namespace zero::engine
