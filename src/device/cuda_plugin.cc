// SPDX-License-Identifier: BSD-3-Clause
#include "device/cuda_plugin.h"

#include <dlfcn.h>

#include <cstdlib>
#include <mutex>
#include <string>

#include "base/error.h"

namespace zero::device {
namespace {

constexpr const char* kFileName = "libzero_cuda.so";

// The folder of the file that this code lies in, with its slash; "" where that is not known.
std::string own_folder() {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&cuda_plugin), &info) == 0) return "";
  if (info.dli_fname == nullptr) return "";
  const std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

// Null, with a sentence for each thing that was tried.
void* open_file(std::string* tried) {
  const char* const named = std::getenv("LIBZERO_CUDA_PATH");
  const bool by_name = named != nullptr && *named != '\0';
  const std::string candidates[] = {by_name ? named : own_folder() + kFileName, kFileName};
  for (const std::string& path : candidates) {
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) return library;
    const char* const why = dlerror();
    *tried += (tried->empty() ? "" : "; ") + std::string(why == nullptr ? path.c_str() : why);
    if (by_name) break; // what was asked for, and nothing else
  }
  return nullptr;
}

const CudaPlugin* open_plugin(int32_t ordinal) {
  std::string tried;
  void* const library = open_file(&tried);
  if (library == nullptr) {
    fail(ZERO_ERR_UNSUPPORTED,
         "CUDA device %d was asked for, but libzero's CUDA part could not be opened: %s; expected "
         "%s beside libzero.so (build with -Dcuda=enabled), or its path in LIBZERO_CUDA_PATH",
         ordinal, tried.c_str(), kFileName);
  }
  const auto function = reinterpret_cast<CudaPluginFunction>(dlsym(library, kCudaPluginSymbol));
  const CudaPlugin* const plugin = function == nullptr ? nullptr : function(kCudaPluginVersion);
  if (plugin == nullptr || plugin->version != kCudaPluginVersion ||
      plugin->size != sizeof(CudaPlugin) || plugin->kernels == nullptr) {
    Dl_info info{};
    if (function != nullptr) dladdr(reinterpret_cast<const void*>(function), &info);
    const std::string path = info.dli_fname == nullptr ? kFileName : info.dli_fname;
    dlclose(library);
    fail(ZERO_ERR_UNSUPPORTED,
         "%s is not the CUDA part of this libzero: expected its table of version %u; it comes from "
         "the same build as libzero.so",
         path.c_str(), kCudaPluginVersion);
  }
  return plugin;
}

// cudaError_t's after which the context is gone: cudaErrorIllegalAddress to cudaErrorLaunchFailure.
constexpr int32_t kFirstLost = 700;
constexpr int32_t kLastLost = 719;

} // namespace

const CudaPlugin& cuda_plugin(int32_t ordinal) {
  static std::mutex mutex;
  static const CudaPlugin* plugin = nullptr;
  const std::lock_guard<std::mutex> lock(mutex);
  if (plugin == nullptr) plugin = open_plugin(ordinal); // a failure is tried again
  return *plugin;
}

void fail_cuda(int32_t error, const char* what) {
  const CudaPlugin& cuda = cuda_plugin(-1); // it is open: the error came from it
  const bool lost = error >= kFirstLost && error <= kLastLost;
  throw Error(lost ? ZERO_ERR_DEVICE_LOST : ZERO_ERR_DEVICE,
              format("%s: %s (%s)", what, cuda.error_name(error), cuda.error_text(error)), -1,
              error, "cuda");
}

CurrentDevice::CurrentDevice(int32_t ordinal) : cuda_(cuda_plugin(ordinal)), ordinal_(ordinal) {
  int32_t error = cuda_.get_device(&before_);
  if (error == 0 && before_ != ordinal_) error = cuda_.set_device(ordinal_);
  if (error != 0) fail_cuda(error, "a CUDA device could not be made current");
}

CurrentDevice::~CurrentDevice() {
  if (before_ != ordinal_) cuda_.set_device(before_);
}

} // namespace zero::device
