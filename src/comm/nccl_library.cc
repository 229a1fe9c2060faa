// SPDX-License-Identifier: BSD-3-Clause
#include "comm/nccl_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <mutex>

#include "base/error.h"

namespace zero::comm {
namespace {

constexpr const char* kSystemName = "libnccl.so.2";
constexpr const char* kFirstSymbol = "ncclGetVersion";

// What dlsym is asked of, with a sentence for each place that has none.
void* open_library(std::string* tried) {
  if (dlsym(RTLD_DEFAULT, kFirstSymbol) != nullptr) return RTLD_DEFAULT;
  void* const loaded = dlopen(kSystemName, RTLD_NOW | RTLD_NOLOAD);
  if (loaded != nullptr) return loaded;
  const char* const named = std::getenv("LIBZERO_NCCL_PATH");
  const char* const path = named != nullptr && *named != '\0' ? named : kSystemName;
  void* const opened = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (opened != nullptr) return opened;
  const char* const why = dlerror();
  *tried = why == nullptr ? path : why;
  return nullptr;
}

std::string path_of(const void* function) {
  Dl_info info;
  if (dladdr(function, &info) == 0 || info.dli_fname == nullptr) return kSystemName;
  return info.dli_fname;
}

template <typename Function>
void look_up(void* library, const char* symbol, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, symbol));
}

// Throws where a symbol is missing that every version since the oldest has.
template <typename Function>
void need(void* library, const std::string& path, const char* symbol, Function* function) {
  look_up(library, symbol, function);
  if (*function != nullptr) return;
  fail(ZERO_ERR_UNSUPPORTED, "NCCL at %s has no %s; expected version 2.18 or newer", path.c_str(),
       symbol);
}

std::string version_text(int32_t version) {
  return format("%d.%d.%d", version / 10000, version % 10000 / 100, version % 100);
}

NcclLibrary open_nccl() {
  std::string tried;
  // RTLD_DEFAULT is a null pointer.
  void* const library = open_library(&tried);
  if (!tried.empty()) {
    fail(ZERO_ERR_UNSUPPORTED,
         "the nccl communicator needs NCCL, which could not be opened: %s; expected it to be "
         "installed, or its path in LIBZERO_NCCL_PATH",
         tried.c_str());
  }
  NcclLibrary nccl;
  look_up(library, kFirstSymbol, &nccl.get_version);
  nccl.path = path_of(reinterpret_cast<const void*>(nccl.get_version));
  need(library, nccl.path, kFirstSymbol, &nccl.get_version);
  int version = 0;
  nccl.get_version(&version);
  nccl.version = version;
  if (version < kOldestNccl) {
    fail(ZERO_ERR_UNSUPPORTED, "NCCL at %s is version %s, expected 2.18 or newer",
         nccl.path.c_str(), version_text(version).c_str());
  }
  need(library, nccl.path, "ncclGetUniqueId", &nccl.get_unique_id);
  need(library, nccl.path, "ncclCommInitRankConfig", &nccl.init_rank);
  need(library, nccl.path, "ncclCommSplit", &nccl.split);
  need(library, nccl.path, "ncclCommDestroy", &nccl.destroy);
  need(library, nccl.path, "ncclCommAbort", &nccl.abort);
  need(library, nccl.path, "ncclCommGetAsyncError", &nccl.async_error);
  need(library, nccl.path, "ncclCommCount", &nccl.count);
  need(library, nccl.path, "ncclCommUserRank", &nccl.user_rank);
  need(library, nccl.path, "ncclCommCuDevice", &nccl.device);
  need(library, nccl.path, "ncclGetErrorString", &nccl.error_string);
  need(library, nccl.path, "ncclAllReduce", &nccl.all_reduce);
  need(library, nccl.path, "ncclBroadcast", &nccl.broadcast);
  need(library, nccl.path, "ncclReduceScatter", &nccl.reduce_scatter);
  need(library, nccl.path, "ncclAllGather", &nccl.all_gather);
  need(library, nccl.path, "ncclSend", &nccl.send);
  need(library, nccl.path, "ncclRecv", &nccl.recv);
  need(library, nccl.path, "ncclGroupStart", &nccl.group_start);
  need(library, nccl.path, "ncclGroupEnd", &nccl.group_end);
  look_up(library, "ncclMemAlloc", &nccl.mem_alloc);
  look_up(library, "ncclMemFree", &nccl.mem_free);
  look_up(library, "ncclGetLastError", &nccl.last_error);
  look_up(library, "ncclCommWindowRegister", &nccl.window_register);
  look_up(library, "ncclCommWindowDeregister", &nccl.window_deregister);
  return nccl;
}

} // namespace

const NcclLibrary& nccl_library() {
  static std::mutex mutex;
  static NcclLibrary* library = nullptr; // never freed: threads may outlive statics
  const std::lock_guard<std::mutex> lock(mutex);
  if (library == nullptr) library = new NcclLibrary(open_nccl()); // a failure is tried again
  return *library;
}

} // namespace zero::comm
