// NCCL of the emulated machine.  A group of calls is one operation on its stream, behind the
// communicator's last; it posts what it sends when it is run and ends when the others have posted
// theirs.  Ranks that call something else, or nothing, let it wait for ever, as NCCL does.
// SPDX-License-Identifier: BSD-3-Clause
#include <nccl.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "collective_board.h"
#include "device_memory.h"
#include "machine_calls.h"

using namespace cuemu;

struct ncclComm {
  std::unique_ptr<Board> board;
  std::string name;
  int ranks = 0, rank = 0, device = 0;
  uint64_t collectives = 0, splits = 0, sent[kMostRanks] = {}, received[kMostRanks] = {};
  Ticket last; // of what was not captured, under the machine's lock
  std::atomic<bool> aborted{false};
  bool in_progress = false; // a non-blocking init that nobody has asked about
  ncclResult_t result = ncclSuccess; // of init
};

namespace {

constexpr auto kNap = std::chrono::microseconds(300);

struct Exchange {
  Move move;
  const void* send;
  void* recv;
};
struct Queued {
  ncclComm_t comm;
  cudaStream_t stream;
  Exchange call;
};
thread_local int t_depth = 0;
thread_local std::vector<Queued> t_group;

// All communicators of this process, under the machine's lock; never destroyed, as their thread.
std::vector<ncclComm_t>& comms() {
  static auto* const all = new std::vector<ncclComm_t>;
  return *all;
}

// Ranks that wait for this process' part of a collective get it, whatever its threads do.
void serve_peers() {
  static std::atomic<pid_t> served{0};
  if (served.exchange(getpid()) == getpid()) return;
  std::thread([] {
    for (;;) {
      std::this_thread::sleep_for(kNap);
      Machine& machine = Machine::get();
      const auto lock = machine.lock();
      for (const ncclComm_t comm : comms()) {
        if (comm->board == nullptr || !comm->board->wanted()) continue;
        const Ticket first = machine.first_of(comm);
        if (first != nullptr) machine.advance(first);
      }
    }
  }).detach();
}

// One run of a group: what it has done so far.
struct Run {
  std::vector<uint64_t> sequence; // 0: not begun
  std::vector<bool> ended;
  std::vector<bool> posted;
};

bool begin_or_end(ncclComm* comm, const Exchange& call, uint64_t* sequence, bool is_posted,
                  bool* posted) {
  Board& board = *comm->board;
  const Move& move = call.move;
  const uint64_t bytes = move.count * type_bytes(move.type);
  const auto peer = static_cast<size_t>(move.peer);
  if (move.kind == Move::kSend) {
    if (*sequence == 0) *sequence = ++comm->sent[peer];
    if (!board.may_send(move.peer, *sequence)) return false;
    board.send(move.peer, *sequence, call.send, bytes);
    return true;
  }
  if (move.kind == Move::kRecv) {
    if (*sequence == 0) *sequence = ++comm->received[peer];
    if (!board.may_receive(move.peer, *sequence, bytes)) return false;
    board.receive(move.peer, *sequence, call.recv, bytes);
    return true;
  }
  const auto ranks = static_cast<uint64_t>(comm->ranks);
  if (*sequence == 0) *sequence = ++comm->collectives;
  if (!is_posted) {
    if (!board.may_post(*sequence)) return false;
    const bool sends = move.kind != Move::kBroadcast || move.peer == comm->rank;
    const uint64_t whole = move.kind == Move::kReduceScatter ? bytes * ranks : bytes;
    board.post(*sequence, move, call.send, sends ? whole : 0);
    *posted = true;
  }
  if (!board.all_posted(*sequence) || !board.all_agree()) return false;
  char* const to = static_cast<char*>(call.recv);
  switch (move.kind) {
    case Move::kAllGather:
      for (int r = 0; r < comm->ranks; ++r) {
        memcpy(to + static_cast<uint64_t>(r) * bytes, board.posted(r), bytes);
      }
      break;
    case Move::kReduceScatter:
      reduce_posted(board, move, comm->rank, static_cast<uint64_t>(comm->rank) * move.count,
                    move.count, to);
      break;
    case Move::kAllReduce: // in as many parts as ranks
      for (uint64_t r = 0; r < ranks; ++r) {
        const uint64_t first = move.count * r / ranks, last = move.count * (r + 1) / ranks;
        reduce_posted(board, move, static_cast<int>(r), first, last - first,
                      to + first * type_bytes(move.type));
      }
      break;
    default:
      memcpy(to, board.posted(move.peer), bytes);
  }
  board.finish(*sequence);
  return true;
}

Body body_of(ncclComm* comm, std::vector<Exchange> calls) {
  return [comm, calls = std::move(calls)](uint64_t* phase) {
    auto* run = reinterpret_cast<Run*>(*phase);
    if (run == nullptr) {
      run = new Run{std::vector<uint64_t>(calls.size()), std::vector<bool>(calls.size()),
                    std::vector<bool>(calls.size())};
      *phase = reinterpret_cast<uint64_t>(run);
    }
    bool all = true;
    for (size_t c = 0; c < calls.size() && !comm->aborted; ++c) {
      if (run->ended[c]) continue;
      bool posted = run->posted[c];
      run->ended[c] = begin_or_end(comm, calls[c], &run->sequence[c], posted, &posted);
      run->posted[c] = posted;
      all = all && run->ended[c];
    }
    if (!all && !comm->aborted) return false;
    delete run;
    return true;
  };
}

bool usable(const ncclComm* comm, const void* memory, uint64_t bytes) {
  return bytes == 0 || (device_of(memory) == comm->device && device_live(memory, bytes)) ||
         (device_of(memory) < 0 && pinned(memory, bytes));
}

ncclResult_t launch(ncclComm_t comm, cudaStream_t stream, std::vector<Exchange> calls) {
  const Call call;
  if (call.error != cudaSuccess) return ncclUnhandledCudaError;
  Machine& machine = Machine::get();
  const cudaStream_t own = machine.resolve(stream);
  if (own == nullptr || own->device != comm->device) return ncclInvalidUsage;
  // One order for all streams of a communicator.
  if (own->capture == nullptr && comm->last != nullptr) own->joins.push_back(comm->last);
  const bool captured = own->capture != nullptr;
  if (put(&call.lock, own, "NCCL", body_of(comm, std::move(calls)), comm) != cudaSuccess) {
    return ncclUnhandledCudaError;
  }
  if (!captured) comm->last = own->last;
  return ncclSuccess;
}

ncclResult_t add(ncclComm_t comm, cudaStream_t stream, const Exchange& call) {
  if (comm == nullptr) return ncclInvalidArgument;
  if (comm->in_progress || comm->result != ncclSuccess || comm->aborted) return ncclInvalidUsage;
  const Move& move = call.move;
  const uint64_t bytes = move.count * type_bytes(move.type);
  const auto ranks = static_cast<uint64_t>(comm->ranks);
  const uint64_t in = move.kind == Move::kReduceScatter ? bytes * ranks : bytes;
  const uint64_t out = move.kind == Move::kAllGather ? bytes * ranks : bytes;
  const bool sends =
      move.kind != Move::kRecv && (move.kind != Move::kBroadcast || move.peer == comm->rank);
  if (move.peer < 0 || move.peer >= comm->ranks || (sends && !usable(comm, call.send, in)) ||
      (move.kind != Move::kSend && !usable(comm, call.recv, out))) {
    return ncclInvalidArgument;
  }
  if (t_depth > 0) {
    t_group.push_back({comm, stream, call});
    return ncclSuccess;
  }
  return launch(comm, stream, {call});
}

ncclResult_t finish_init(ncclComm_t comm) {
  if (comm->board->attached() < comm->ranks) return ncclInProgress;
  comm->in_progress = false;
  comm->result = comm->board->device_taken_twice() ? ncclInvalidUsage : ncclSuccess;
  return comm->result;
}

ncclResult_t init(ncclComm_t* made, int ranks, const std::string& name, int rank,
                  const ncclConfig_t* config) {
  if (ranks < 1 || ranks > kMostRanks || rank < 0 || rank >= ranks) return ncclInvalidArgument;
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess || cudaSetDevice(device) != cudaSuccess) {
    return ncclUnhandledCudaError;
  }
  auto* const comm = new ncclComm;
  comm->name = name;
  comm->ranks = ranks;
  comm->rank = rank;
  comm->device = device;
  comm->in_progress = true;
  comm->board = std::make_unique<Board>(name, ranks, rank, device);
  {
    const auto lock = Machine::get().lock();
    comms().push_back(comm);
  }
  serve_peers();
  *made = comm;
  if (config != nullptr && config->blocking == 0) return ncclInProgress;
  while (comm->board->attached() < ranks) std::this_thread::sleep_for(kNap);
  return finish_init(comm);
}

void forget(ncclComm_t comm) {
  const auto lock = Machine::get().lock();
  std::erase(comms(), comm);
  // The object stays where operations of it are queued.
  if (Machine::get().first_of(comm) == nullptr) comm->board.reset();
}

} // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  const char* const text = getenv("CUEMU_NCCL_VERSION");
  *version = text != nullptr ? atoi(text) : NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<uint64_t> count{0};
  memset(id, 0, sizeof *id);
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  snprintf(id->internal, sizeof id->internal, "/emulated-nccl-%d-%llx-%llu", getpid(),
           static_cast<unsigned long long>(now), static_cast<unsigned long long>(count++));
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  return init(comm, ranks, id.internal, rank, nullptr);
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  return init(comm, ranks, id.internal, rank, config);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made,
                           ncclConfig_t* config) {
  if (comm == nullptr || comm->in_progress) return ncclInvalidUsage;
  const uint64_t number = ++comm->splits;
  comm->board->split_post(number, color, key);
  while (!comm->board->split_ready(number)) std::this_thread::sleep_for(kNap);
  std::vector<std::pair<int, int>> members; // key, rank
  for (int r = 0; r < comm->ranks; ++r) {
    int other = 0, other_key = 0;
    comm->board->split_of(r, &other, &other_key);
    if (other == color) members.emplace_back(other_key, r);
  }
  *made = nullptr;
  if (color == NCCL_SPLIT_NOCOLOR) return ncclSuccess;
  std::sort(members.begin(), members.end());
  int rank = 0;
  while (members[static_cast<size_t>(rank)].second != comm->rank) ++rank;
  int before = 0;
  cudaGetDevice(&before);
  cudaSetDevice(comm->device);
  const std::string name = comm->name + "-" + std::to_string(number) + "-" + std::to_string(color);
  const ncclResult_t result = init(made, static_cast<int>(members.size()), name, rank, config);
  cudaSetDevice(before);
  return result;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (comm == nullptr) return ncclInvalidArgument;
  auto lock = Machine::get().lock();
  for (Ticket first; (first = Machine::get().first_of(comm)) != nullptr;) {
    Machine::get().drive(&lock, first);
  }
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  const ncclResult_t result = ncclCommFinalize(comm);
  forget(comm);
  return result;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  comm->aborted = true;
  forget(comm);
  Machine::get().woken();
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  if (comm == nullptr || error == nullptr) return ncclInvalidArgument;
  *error = comm->in_progress ? finish_init(comm) : comm->result;
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  *count = comm->ranks;
  return ncclSuccess;
}
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  *device = comm->device;
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  *rank = comm->rank;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
  }
  return "unknown result code";
}
const char* ncclGetLastError(ncclComm_t) {
  return "";
}

ncclResult_t ncclMemAlloc(void** memory, size_t bytes) {
  return cudaMalloc(memory, bytes) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}
ncclResult_t ncclMemFree(void* memory) {
  return cudaFree(memory) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}
ncclResult_t ncclCommRegister(const ncclComm_t comm, void* memory, size_t bytes, void** handle) {
  if (!usable(comm, memory, bytes)) return ncclInvalidArgument;
  *handle = memory;
  return ncclSuccess;
}
ncclResult_t ncclCommDeregister(const ncclComm_t, void*) {
  return ncclSuccess;
}
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* memory, size_t bytes,
                                    ncclWindow_t* window, int) {
  if (!usable(comm, memory, bytes)) return ncclInvalidArgument;
  *window = static_cast<ncclWindow_t>(memory);
  return ncclSuccess;
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t, ncclWindow_t) {
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* send, void* recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, {{Move::kAllReduce, type, op, 0, count}, send, recv});
}
ncclResult_t ncclBroadcast(const void* send, void* recv, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, {{Move::kBroadcast, type, ncclSum, root, count}, send, recv});
}
ncclResult_t ncclReduceScatter(const void* send, void* recv, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, {{Move::kReduceScatter, type, op, 0, count}, send, recv});
}
ncclResult_t ncclAllGather(const void* send, void* recv, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, {{Move::kAllGather, type, ncclSum, 0, count}, send, recv});
}
ncclResult_t ncclSend(const void* send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, {{Move::kSend, type, ncclSum, peer, count}, send, nullptr});
}
ncclResult_t ncclRecv(void* recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add(comm, stream, {{Move::kRecv, type, ncclSum, peer, count}, nullptr, recv});
}

ncclResult_t ncclGroupStart(void) {
  ++t_depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd(void) {
  if (t_depth == 0) return ncclInvalidUsage;
  if (--t_depth > 0) return ncclSuccess;
  std::vector<Queued> group;
  group.swap(t_group);
  while (!group.empty()) { // those of one communicator and stream together
    const Queued first = group.front();
    std::vector<Exchange> calls;
    std::erase_if(group, [&](const Queued& queued) {
      if (queued.comm != first.comm || queued.stream != first.stream) return false;
      calls.push_back(queued.call);
      return true;
    });
    const ncclResult_t result = launch(first.comm, first.stream, std::move(calls));
    if (result != ncclSuccess) return result;
  }
  return ncclSuccess;
}

} // extern "C"
