// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/checkpoint_export.h"

#include <algorithm>

#include "base/dtype.h"
#include "base/error.h"
#include "checkpoint/element_cast.h"
#include "checkpoint/safetensors_writer.h"

namespace zero::checkpoint {
namespace {

constexpr uint64_t kPieceElements = uint64_t{1} << 20;

bool is_float(zero_dtype dtype) {
  return dtype == ZERO_DTYPE_FP32 || is_16_bit_float(dtype);
}

zero_dtype export_dtype(const StoredParameter& parameter, zero_dtype asked) {
  const bool convertible = parameter.role != ZERO_PARAM_BUFFER && is_float(parameter.dtype);
  return asked == 0 || !convertible ? parameter.dtype : asked;
}

// The part that the weights come from: the value where it is kept, else its master.
int32_t part_of(const Manifest& manifest, int32_t row) {
  const int32_t value = manifest.find_part(row, ZERO_PART_VALUE, 0);
  return value >= 0 ? value : manifest.find_part(row, ZERO_PART_MASTER, 0);
}

} // namespace

uint64_t export_bytes(const CheckpointReader& reader, zero_dtype dtype) {
  uint64_t bytes = 0;
  for (const StoredParameter& parameter : reader.manifest().parameters) {
    if (parameter.tied_to < 0) {
      bytes += parameter.elements * dtype_bytes(export_dtype(parameter, dtype));
    }
  }
  return bytes;
}

void export_checkpoint(const CheckpointReader& reader, const std::string& path, zero_dtype dtype,
                       uint64_t max_file_bytes, const Progress& progress) {
  if (dtype != 0 && !is_float(dtype)) {
    fail(ZERO_ERR_INVALID_ARGUMENT,
         "zero_checkpoint_export: dtype is %d, expected 0 (each its own), fp32, fp16 or bf16",
         dtype);
  }
  const Manifest& manifest = reader.manifest();
  std::vector<SafetensorsTensor> tensors;
  std::vector<SafetensorsAlias> aliases;
  std::vector<int32_t> rows;
  for (size_t p = 0; p < manifest.parameters.size(); ++p) {
    const StoredParameter& parameter = manifest.parameters[p];
    const auto row = static_cast<int32_t>(p);
    if (parameter.tied_to >= 0) {
      const auto root = static_cast<size_t>(manifest.root_of(row));
      aliases.push_back({parameter.name, manifest.parameters[root].name});
      continue;
    }
    SafetensorsTensor tensor;
    tensor.name = parameter.name;
    tensor.dtype = export_dtype(parameter, dtype);
    tensor.shape = parameter.shape;
    tensor.bytes = parameter.elements * dtype_bytes(tensor.dtype);
    tensors.push_back(std::move(tensor));
    rows.push_back(row);
  }
  const SafetensorsLayout layout = lay_out_safetensors(tensors, aliases, max_file_bytes);
  SafetensorsWriter writer(path, layout, max_file_bytes != 0);
  std::vector<std::byte> stored;
  std::vector<std::byte> converted;
  for (const SafetensorsFile& file : layout.files) {
    for (const size_t t : file.tensors) {
      const int32_t row = rows[t];
      const StoredParameter& parameter = manifest.parameters[static_cast<size_t>(row)];
      const int32_t part = part_of(manifest, row);
      const zero_dtype from = parameter.parts[static_cast<size_t>(part)].dtype;
      const zero_dtype to = tensors[t].dtype;
      for (uint64_t at = 0; at < parameter.elements; at += kPieceElements) {
        const uint64_t count = std::min(kPieceElements, parameter.elements - at);
        stored.resize(count * dtype_bytes(from));
        converted.resize(count * dtype_bytes(to));
        reader.read(row, part, at, count, stored.data());
        cast_elements(stored.data(), from, converted.data(), to, count);
        writer.append(converted.data(), converted.size());
        if (progress) progress(converted.size());
      }
    }
  }
  writer.finish();
}

} // namespace zero::checkpoint
