// SPDX-License-Identifier: BSD-3-Clause
#include "comm/rendezvous_host.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "comm/fd_passing.h"
#include "comm/local_segment.h"
#include "comm/progress_watch.h"

namespace zero::comm {
namespace {

// How long others may still come to hear a refusal.
constexpr int64_t kGraceNs = INT64_C(1000) * 1000 * 1000;
constexpr size_t kMostStrangers = 64; // connections beyond the ranks themselves

Verdict verdict(VerdictKind kind, int32_t rank) {
  Verdict message = {};
  message.kind = kind;
  message.rank = rank;
  return message;
}

} // namespace

RendezvousHost::RendezvousHost(Descriptor listener, const std::string& group, int32_t size,
                               int64_t timeout_ns)
    : listener_(std::move(listener)),
      group_(group),
      size_(size),
      timeout_ns_(timeout_ns),
      present_(static_cast<size_t>(size), false) {
  present_[0] = true;
}

LocalParty RendezvousHost::meet() {
  const int64_t deadline = now_ns() + timeout_ns_;
  int64_t grace_end = INT64_MAX;
  while (refusal_ != ZERO_OK || !all_came()) {
    const int64_t now = now_ns();
    if (refusal_ != ZERO_OK) {
      grace_end = std::min(grace_end, now + kGraceNs);
      if (all_came() || now >= grace_end || now >= deadline) tell_and_fail();
    } else if (now >= deadline) {
      int32_t first = -1;
      const std::string missing = missing_ranks(&first);
      refuse(ZERO_ERR_COMM_TIMEOUT, first,
             format("local group \"%s\": %s of %d did not come within %.3g s", group_.c_str(),
                    missing.c_str(), size_, static_cast<double>(timeout_ns_) / 1e9));
      tell_and_fail();
    }
    wait_for_events(std::min(deadline, grace_end));
  }
  // Before anybody is welcomed: who is may at once meet again under the same name.
  listener_.reset();
  guests_.erase(std::remove_if(guests_.begin(), guests_.end(),
                               [](const Guest& guest) { return guest.rank < 0; }),
                guests_.end());
  return link_all();
}

void RendezvousHost::wait_for_events(int64_t until_ns) {
  std::vector<pollfd> polled = {{listener_.get(), POLLIN, 0}};
  for (const Guest& guest : guests_) {
    polled.push_back({guest.socket.get(), POLLIN, 0});
    polled.push_back({guest.process.get(), POLLIN, 0});
  }
  const int64_t left_ms = (until_ns - now_ns()) / 1000000 + 1;
  const int timeout_ms = static_cast<int>(std::clamp<int64_t>(left_ms, 0, 1000));
  if (poll(polled.data(), polled.size(), timeout_ms) <= 0) return;
  for (size_t i = 0; i < guests_.size(); ++i) {
    if (polled[1 + 2 * i].revents != 0) hear(guests_[i]);
    if (guests_[i].socket.valid() && (polled[2 + 2 * i].revents & POLLIN) != 0) {
      refuse(ZERO_ERR_COMM, guests_[i].rank,
             format("local group \"%s\": rank %d died while the ranks were meeting", group_.c_str(),
                    guests_[i].rank));
      guests_[i].socket.reset();
    }
  }
  guests_.erase(std::remove_if(guests_.begin(), guests_.end(),
                               [](const Guest& guest) { return !guest.socket.valid(); }),
                guests_.end());
  if ((polled[0].revents & POLLIN) != 0) accept_guests();
}

void RendezvousHost::accept_guests() {
  for (;;) {
    Descriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.valid()) return;
    Guest guest;
    // An abstract name has no permissions: any user of the machine may knock.
    if (!identify_peer(socket.get(), &guest.identity) || guest.identity.user != geteuid()) continue;
    if (guests_.size() >= static_cast<size_t>(size_) + kMostStrangers) continue;
    guest.socket = std::move(socket);
    guests_.push_back(std::move(guest));
  }
}

void RendezvousHost::hear(Guest& guest) {
  Hello hello = {};
  Descriptor passed[kPassedDescriptors];
  switch (receive_message(guest.socket.get(), &hello, sizeof(hello), passed)) {
    case Received::kNothing:
      return;
    case Received::kClosed:
      if (guest.rank >= 0) {
        refuse(ZERO_ERR_COMM, guest.rank,
               format("local group \"%s\": rank %d died while the ranks were meeting",
                      group_.c_str(), guest.rank));
      }
      guest.socket.reset();
      return;
    case Received::kMessage:
      break;
  }
  if (hello.magic != kHelloMagic || guest.rank >= 0) {
    guest.socket.reset(); // not one of us
    return;
  }
  if (guest.identity.process != getpid()) guest.process = std::move(passed[0]);
  judge(guest, hello);
}

void RendezvousHost::judge(Guest& guest, const Hello& hello) {
  guest.rank = hello.rank;
  const Verdict heard = verdict(VerdictKind::kHeard, 0);
  const Descriptor self = guest.process.valid() ? own_process() : Descriptor();
  send_message(guest.socket.get(), &heard, sizeof(heard), self.get());
  const char* const group = group_.c_str();
  if (hello.protocol != kLocalProtocol || hello.control_bytes != control_bytes(hello.size)) {
    refuse(ZERO_ERR_COMM_MISMATCH, hello.rank,
           format("local group \"%s\": rank %d is of another build of libzero (protocol %u), "
                  "rank 0 speaks protocol %u",
                  group, hello.rank, hello.protocol, kLocalProtocol));
  } else if (hello.size != size_) {
    refuse(ZERO_ERR_COMM_MISMATCH, hello.rank,
           format("local group \"%s\": rank %d says there are %d ranks, rank 0 says %d", group,
                  hello.rank, hello.size, size_));
  } else if (hello.rank < 0 || hello.rank >= size_) {
    refuse(ZERO_ERR_COMM_MISMATCH, hello.rank,
           format("local group \"%s\": a rank %d came, expected 0 <= rank < %d", group, hello.rank,
                  size_));
  } else if (present_[static_cast<size_t>(hello.rank)]) {
    refuse(ZERO_ERR_COMM_MISMATCH, hello.rank,
           format("local group \"%s\": rank %d came twice; each rank needs its own number", group,
                  hello.rank));
  } else {
    present_[static_cast<size_t>(hello.rank)] = true;
    ++came_;
  }
}

void RendezvousHost::refuse(zero_status status, int32_t rank, const std::string& text) {
  if (refusal_ != ZERO_OK) return;
  refusal_ = status;
  refused_rank_ = rank;
  refusal_text_ = text;
}

void RendezvousHost::tell_and_fail() {
  listener_.reset();
  Verdict message = verdict(VerdictKind::kRefused, refused_rank_);
  message.status = refusal_;
  std::strncpy(message.text, refusal_text_.c_str(), sizeof(message.text) - 1);
  for (const Guest& guest : guests_) send_message(guest.socket.get(), &message, sizeof(message));
  throw Error(refusal_, refusal_text_, refused_rank_);
}

std::string RendezvousHost::missing_ranks(int32_t* first) const {
  std::string list;
  int32_t count = 0;
  for (int32_t i = 0; i < size_; ++i) {
    if (present_[static_cast<size_t>(i)]) continue;
    if (*first < 0) *first = i;
    list += (count++ == 0 ? "" : ", ") + std::to_string(i);
  }
  return (count == 1 ? "rank " : "ranks ") + list;
}

LocalParty RendezvousHost::link_all() {
  LocalParty party;
  party.peers.resize(static_cast<size_t>(size_));
  try {
    party.control = create_shared_memory(control_bytes(size_));
  } catch (const Error& error) {
    refuse(error.status(), 0, error.message());
    tell_and_fail();
  }
  // A guest that died meanwhile does not hear: the communicator finds it dead.
  for (size_t a = 0; a < guests_.size(); ++a) {
    for (size_t b = a + 1; b < guests_.size(); ++b) {
      int pair[2];
      if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) {
        refuse(ZERO_ERR_COMM, 0, format("no socket pair: %s", std::strerror(errno)));
        tell_and_fail();
      }
      const Descriptor end_a(pair[0]), end_b(pair[1]);
      const int32_t process = guests_[a].identity.process; // 0: of another pid namespace
      const bool together = process != 0 && process == guests_[b].identity.process;
      const Verdict to_a = verdict(VerdictKind::kLink, guests_[b].rank);
      const Verdict to_b = verdict(VerdictKind::kLink, guests_[a].rank);
      send_message(guests_[a].socket.get(), &to_a, sizeof(to_a), end_a.get(),
                   together ? -1 : guests_[b].process.get());
      send_message(guests_[b].socket.get(), &to_b, sizeof(to_b), end_b.get(),
                   together ? -1 : guests_[a].process.get());
    }
  }
  const Verdict welcome = verdict(VerdictKind::kWelcome, 0);
  for (Guest& guest : guests_) {
    send_message(guest.socket.get(), &welcome, sizeof(welcome), party.control.get());
    LocalPeer& peer = party.peers[static_cast<size_t>(guest.rank)];
    peer.socket = std::move(guest.socket);
    peer.process = std::move(guest.process);
  }
  return party;
}

} // namespace zero::comm
