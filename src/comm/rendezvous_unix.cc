// SPDX-License-Identifier: BSD-3-Clause
#include "comm/rendezvous_unix.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/error.h"
#include "comm/fd_passing.h"
#include "comm/progress_watch.h"
#include "comm/rendezvous_host.h"

namespace zero::comm {
namespace {

constexpr int64_t kGraceNs = INT64_C(2000) * 1000 * 1000;

void pause_ms(int milliseconds) {
  poll(nullptr, 0, milliseconds);
}

uint64_t hash_text(const std::string& text) { // FNV-1a
  uint64_t hash = UINT64_C(14695981039346656037);
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * UINT64_C(1099511628211);
  return hash;
}

// Descriptors that found no room were dropped on the way.
void check_complete(const LocalParty& party, const std::string& group, int32_t rank) {
  bool complete = party.control.valid();
  for (int32_t i = 1; i < static_cast<int32_t>(party.peers.size()); ++i) {
    complete = complete && (i == rank || party.peers[static_cast<size_t>(i)].socket.valid());
  }
  if (complete) return;
  throw Error(ZERO_ERR_COMM,
              format("local group \"%s\": rank %d has too few file descriptors for its %zu peers "
                     "(see ulimit -n)",
                     group.c_str(), rank, party.peers.size() - 1),
              rank, EMFILE, "os");
}

// One visit to rank 0: hello, then verdicts until welcome.  False: rank 0 was just about to close
// (it was the end of an earlier meeting under this name); come again.
bool visit(const Descriptor& socket, const std::string& group, int32_t rank, int32_t size,
           int64_t deadline, LocalParty* party) {
  const Hello hello = {kHelloMagic, kLocalProtocol, rank, size, control_bytes(size)};
  const Descriptor self = own_process();
  if (!send_message(socket.get(), &hello, sizeof(hello), self.get())) return false;
  party->peers.clear();
  party->peers.resize(static_cast<size_t>(size));
  Descriptor host_process;
  bool heard = false;
  for (;;) {
    Verdict verdict = {};
    Descriptor passed[kPassedDescriptors];
    const Received received = receive_message(socket.get(), &verdict, sizeof(verdict), passed);
    if (received == Received::kClosed && !heard) return false;
    if (received == Received::kClosed) {
      throw Error(
          ZERO_ERR_COMM,
          format("local group \"%s\": rank 0 died while the ranks were meeting", group.c_str()), 0);
    }
    if (received == Received::kNothing) {
      const int64_t now = now_ns();
      if (now >= deadline + (heard ? kGraceNs : 0)) {
        throw Error(
            ZERO_ERR_COMM_TIMEOUT,
            format("local group \"%s\": rank 0 was there but did not answer rank %d in time",
                   group.c_str(), rank),
            0);
      }
      pollfd polled[2] = {{socket.get(), POLLIN, 0}, {host_process.get(), POLLIN, 0}};
      poll(polled, 2, 100);
      if ((polled[1].revents & POLLIN) != 0 && polled[0].revents == 0) {
        throw Error(
            ZERO_ERR_COMM,
            format("local group \"%s\": rank 0 died while the ranks were meeting", group.c_str()),
            0);
      }
      continue;
    }
    switch (verdict.kind) {
      case VerdictKind::kHeard:
        heard = true;
        host_process = std::move(passed[0]);
        break;
      case VerdictKind::kLink: {
        if (verdict.rank < 0 || verdict.rank >= size) break;
        LocalPeer& peer = party->peers[static_cast<size_t>(verdict.rank)];
        peer.socket = std::move(passed[0]);
        peer.process = std::move(passed[1]);
        break;
      }
      case VerdictKind::kWelcome:
        party->control = std::move(passed[0]);
        party->peers[0].process = std::move(host_process);
        check_complete(*party, group, rank);
        return true;
      case VerdictKind::kRefused:
        verdict.text[sizeof(verdict.text) - 1] = '\0';
        throw Error(verdict.status, verdict.text, verdict.rank);
    }
  }
}

} // namespace

bool identify_peer(int socket, PeerIdentity* identity) {
  ucred credentials;
  socklen_t length = sizeof(credentials);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) return false;
  identity->process = credentials.pid;
  identity->user = credentials.uid;
  return true;
}

Descriptor local_socket() {
  Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) {
    throw Error(ZERO_ERR_COMM, format("no Unix socket: %s", std::strerror(errno)), -1, errno, "os");
  }
  return socket;
}

int bind_or_connect(int socket, const std::string& name, bool listen) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const size_t length = std::min(name.size(), sizeof(address.sun_path) - 1);
  std::memcpy(address.sun_path + 1, name.data(), length);
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  const auto* const plain = reinterpret_cast<const sockaddr*>(&address);
  if (!listen) return connect(socket, plain, bytes) == 0 ? 0 : errno;
  if (bind(socket, plain, bytes) != 0) return errno;
  return ::listen(socket, kLocalRanks + 16) == 0 ? 0 : errno;
}

std::string local_socket_name(const std::string& job, const std::string& group, uint32_t user) {
  // Lengths keep "a" + "bc" and "ab" + "c" apart.
  const std::string both =
      format("%zu:%s/%zu:%s", job.size(), job.c_str(), group.size(), group.c_str());
  const std::string name = format("libzero-1/%u/%s", user, both.c_str());
  constexpr size_t kMost = sizeof(sockaddr_un{}.sun_path) - 1;
  if (name.size() <= kMost) return name;
  return name.substr(0, kMost - 17) +
         format("/%016llx", static_cast<unsigned long long>(hash_text(both)));
}

LocalParty meet_local_ranks(const std::string& socket_name, const std::string& group, int32_t rank,
                            int32_t size, int64_t timeout_ns) {
  const int64_t deadline = now_ns() + timeout_ns;
  for (int tries = 0;; ++tries) {
    if (rank == 0) {
      Descriptor listener = local_socket();
      const int error = bind_or_connect(listener.get(), socket_name, /*listen=*/true);
      if (error == 0) return RendezvousHost(std::move(listener), group, size, timeout_ns).meet();
      if (error != EADDRINUSE) {
        throw Error(
            ZERO_ERR_COMM,
            format("local group \"%s\": cannot listen: %s", group.c_str(), std::strerror(error)), 0,
            error, "os");
      }
      // Somebody is rank 0 already: go and be told so.
    }
    Descriptor socket = local_socket();
    PeerIdentity host;
    if (bind_or_connect(socket.get(), socket_name, /*listen=*/false) == 0 &&
        identify_peer(socket.get(), &host)) {
      if (host.user != geteuid()) {
        throw Error(ZERO_ERR_COMM,
                    format("local group \"%s\": the process that listens there belongs to user %u, "
                           "expected %u",
                           group.c_str(), host.user, geteuid()),
                    0);
      }
      LocalParty party;
      if (visit(socket, group, rank, size, deadline, &party)) {
        party.peers[0].socket = std::move(socket);
        return party;
      }
    }
    if (now_ns() >= deadline) {
      throw Error(ZERO_ERR_COMM_TIMEOUT,
                  format("local group \"%s\": rank 0 did not come within %.3g s, or was complete "
                         "without this process, which is rank %d",
                         group.c_str(), static_cast<double>(timeout_ns) / 1e9, rank),
                  0);
    }
    pause_ms(std::min(1 + tries, 20));
  }
}

} // namespace zero::comm
