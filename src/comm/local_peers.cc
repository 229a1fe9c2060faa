// SPDX-License-Identifier: BSD-3-Clause
#include "comm/local_peers.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

namespace zero::comm {

LocalPeers::LocalPeers(std::vector<LocalPeer> peers, int32_t rank)
    : peers_(std::move(peers)), rank_(rank) {}

int32_t LocalPeers::find_dead(const ControlBlock& control) const {
  pollfd polled[2 * kLocalRanks];
  nfds_t count = 0;
  for (const LocalPeer& peer : peers_) { // poll ignores -1
    polled[count++] = {peer.process.get(), POLLIN, 0};
    polled[count++] = {peer.socket.get(), POLLRDHUP, 0};
  }
  if (poll(polled, count, 0) <= 0) return -1;
  for (int32_t i = 0; i < static_cast<int32_t>(peers_.size()); ++i) {
    if (i == rank_) continue;
    const size_t at = 2 * static_cast<size_t>(i);
    const bool ended = (polled[at].revents & POLLIN) != 0;
    const bool closed = (polled[at + 1].revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
    // It sets `left` before it closes anything, so the flag is read after.
    if ((ended || closed) && control.ranks[i].left.load(std::memory_order_acquire) == 0) return i;
  }
  return -1;
}

Descriptor own_process() {
  return Descriptor(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
}

} // namespace zero::comm
