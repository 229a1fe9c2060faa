// NCCL by symbol look-up: the one that is in the process already, else LIBZERO_NCCL_PATH, else the
// system's, so that every version from 2.18 on will do and libzero needs none to be built.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace zero::comm {

// As NCCL lays them out (nccl.h of 2.18; later versions read this one by its size).
struct NcclUniqueId {
  char bytes[128];
};
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = 0;
  int cga_cluster_size = INT32_MIN; // not said
  int min_ctas = INT32_MIN, max_ctas = INT32_MIN;
  const char* net_name = nullptr;
  int split_share = INT32_MIN;
};

enum NcclResult : int32_t { kNcclSuccess = 0, kNcclRemoteError = 6, kNcclInProgress = 7 };
enum NcclType : int32_t {
  kNcclByte = 1,
  kNcclInt64 = 4,
  kNcclHalf = 6,
  kNcclFloat = 7,
  kNcclBfloat16 = 9,
};
constexpr int32_t kNcclSum = 0;
constexpr int32_t kOldestNccl = 21800; // 10000 x major + 100 x minor + patch

using NcclComm = void*;

struct NcclLibrary {
  std::string path;
  int32_t version = 0;
  int32_t (*get_version)(int* version) = nullptr;
  int32_t (*get_unique_id)(NcclUniqueId* id) = nullptr;
  int32_t (*init_rank)(NcclComm* comm, int ranks, NcclUniqueId id, int rank,
                       NcclConfig* config) = nullptr;
  int32_t (*split)(NcclComm comm, int color, int key, NcclComm* made, NcclConfig* config) = nullptr;
  int32_t (*destroy)(NcclComm comm) = nullptr;
  int32_t (*abort)(NcclComm comm) = nullptr;
  int32_t (*async_error)(NcclComm comm, int32_t* result) = nullptr;
  int32_t (*count)(NcclComm comm, int* ranks) = nullptr;
  int32_t (*user_rank)(NcclComm comm, int* rank) = nullptr;
  int32_t (*device)(NcclComm comm, int* device) = nullptr;
  const char* (*error_string)(int32_t result) = nullptr;
  int32_t (*all_reduce)(const void* send, void* recv, size_t count, int32_t type, int32_t op,
                        NcclComm comm, void* stream) = nullptr;
  int32_t (*broadcast)(const void* send, void* recv, size_t count, int32_t type, int root,
                       NcclComm comm, void* stream) = nullptr;
  int32_t (*reduce_scatter)(const void* send, void* recv, size_t count, int32_t type, int32_t op,
                            NcclComm comm, void* stream) = nullptr;
  int32_t (*all_gather)(const void* send, void* recv, size_t count, int32_t type, NcclComm comm,
                        void* stream) = nullptr;
  int32_t (*send)(const void* send, size_t count, int32_t type, int peer, NcclComm comm,
                  void* stream) = nullptr;
  int32_t (*recv)(void* recv, size_t count, int32_t type, int peer, NcclComm comm,
                  void* stream) = nullptr;
  int32_t (*group_start)() = nullptr;
  int32_t (*group_end)() = nullptr;
  // Null where this version has none.
  int32_t (*mem_alloc)(void** memory, size_t bytes) = nullptr; // 2.19
  int32_t (*mem_free)(void* memory) = nullptr;
  const char* (*last_error)(NcclComm comm) = nullptr;
  int32_t (*window_register)(NcclComm comm, void* memory, size_t bytes, void** window,
                             int flags) = nullptr; // 2.27
  int32_t (*window_deregister)(NcclComm comm, void* window) = nullptr;
};

// Opened when first asked for, never closed.  Throws UNSUPPORTED saying what was tried, what is
// missing in it, or which version it is.  Any thread.
const NcclLibrary& nccl_library();

} // namespace zero::comm
