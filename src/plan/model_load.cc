// A model from files: a list, a safetensors file, an index of several, or a folder of them.
// SPDX-License-Identifier: BSD-3-Clause
#include <filesystem>
#include <system_error>

#include "base/dtype.h"
#include "base/error.h"
#include "plan/model_list.h"
#include "plan/parameter_table.h"
#include "plan/safetensors_files.h"

namespace zero::plan {
namespace {

namespace fs = std::filesystem;

// Floating-point tensors are trained; what cannot be (fp64, integers) are buffers.
void add_tensor(ParameterTable& table, const TensorEntry& tensor, const std::string& file) {
  Parameter parameter;
  parameter.name = tensor.name;
  parameter.shape = tensor.shape;
  parameter.dtype = tensor.dtype;
  const bool trainable = tensor.dtype == ZERO_DTYPE_FP32 || is_16_bit_float(tensor.dtype);
  parameter.role = trainable ? ZERO_PARAM_TRAINED : ZERO_PARAM_BUFFER;
  try {
    table.add(std::move(parameter));
  } catch (const Error& error) {
    fail(ZERO_ERR_FILE_FORMAT, "file \"%s\": %s", file.c_str(), error.message().c_str());
  }
}

ParameterTable load_safetensors(const std::string& path) {
  const SafetensorsFiles files = read_safetensors_files(path);
  ParameterTable table;
  for (const SafetensorsFiles::File& file : files.files) {
    for (const TensorEntry& tensor : file.tensors) add_tensor(table, tensor, file.path);
  }
  for (const auto& [alias, owner] : files.aliases) {
    const zero_param_id root = table.find(owner);
    Parameter parameter = table.parameters()[static_cast<size_t>(root)];
    parameter.name = alias;
    parameter.tied_to = root;
    table.add(std::move(parameter));
  }
  return table;
}

} // namespace

ParameterTable load_parameter_table(const std::string& path) {
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  if (status.type() == fs::file_type::not_found) {
    fail(ZERO_ERR_NOT_FOUND, "model \"%s\": there is no such file or folder", path.c_str());
  }
  if (code) fail_os(code.value(), "model \"%s\" cannot be read", path.c_str());
  if (fs::is_directory(status)) return load_safetensors(path);
  if (!fs::is_regular_file(status)) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "model \"%s\": expected a file or a folder", path.c_str());
  }
  const std::string extension = fs::path(path).extension().string();
  if (extension == ".safetensors" || extension == ".json") return load_safetensors(path);
  return parse_model_list(read_model_text(path), path);
}

} // namespace zero::plan
