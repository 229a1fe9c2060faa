// The other ranks of a local communicator as processes: who of them is dead.  Two witnesses: the
// process itself (pidfd; a forked child of the dead cannot hide it) and its socket.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

#include "comm/descriptor.h"
#include "comm/local_control.h"

namespace zero::comm {

// What rank `rank` holds of each peer; its own entry is empty.
struct LocalPeer {
  Descriptor socket;
  Descriptor process; // pidfd; absent for ranks of this process and on kernels without pidfd
};

class LocalPeers {
 public:
  LocalPeers(std::vector<LocalPeer> peers, int32_t rank);

  // A rank that is dead and has not left in good order, or -1.  Never blocks, any thread.
  int32_t find_dead(const ControlBlock& control) const;

  int socket(int32_t peer) const { return peers_[static_cast<size_t>(peer)].socket.get(); }

 private:
  std::vector<LocalPeer> peers_;
  int32_t rank_;
};

// A pidfd of the calling process; invalid where the kernel has none.
Descriptor own_process();

} // namespace zero::comm
