// Rank 0's side of the local rendezvous: hears all hellos, links every two ranks, hands out the
// control block - or tells everybody what is wrong.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include "comm/rendezvous_messages.h"
#include "comm/rendezvous_unix.h"

namespace zero::comm {

class RendezvousHost {
 public:
  RendezvousHost(Descriptor listener, const std::string& group, int32_t size, int64_t timeout_ns);
  LocalParty meet();

 private:
  struct Guest {
    Descriptor socket;
    Descriptor process;
    PeerIdentity identity;
    int32_t rank = -1; // until its hello
  };

  bool all_came() const { return came_ == size_ - 1; }
  void wait_for_events(int64_t until_ns);
  void accept_guests();
  void hear(Guest& guest);
  void judge(Guest& guest, const Hello& hello);
  void refuse(zero_status status, int32_t rank, const std::string& text); // the first counts
  [[noreturn]] void tell_and_fail();
  std::string missing_ranks(int32_t* first) const;
  LocalParty link_all();

  Descriptor listener_;
  const std::string group_;
  const int32_t size_;
  const int64_t timeout_ns_;
  std::vector<Guest> guests_;
  std::vector<bool> present_;
  int32_t came_ = 0; // distinct ranks
  zero_status refusal_ = ZERO_OK;
  int32_t refused_rank_ = -1;
  std::string refusal_text_;
};

} // namespace zero::comm
