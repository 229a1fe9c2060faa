// What local ranks say to each other while they meet; between processes of one machine, so plain
// structs.  protocol comes first, so that other versions can be told apart.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <zero.h>

#include <cstdint>
#include <string>

#include "comm/descriptor.h"

namespace zero::comm {

constexpr uint32_t kHelloMagic = 0x5a45524f;

struct Hello { // with the sender's pidfd
  uint32_t magic;
  uint32_t protocol;
  int32_t rank;
  int32_t size;
  uint64_t control_bytes; // two builds of one protocol must still agree on the memory
};

enum class VerdictKind : int32_t {
  kHeard = 1, // hello arrived; with rank 0's pidfd unless in the same process
  kLink = 2, // with a socket to `rank`, and its pidfd unless in the same process
  kWelcome = 3, // all have come; with the control block
  kRefused = 4 // status, rank at fault, text
};

struct Verdict {
  VerdictKind kind;
  int32_t rank;
  zero_status status;
  char text[1000];
};

// The other end's process and user, as the kernel knows them.
struct PeerIdentity {
  int32_t process = 0;
  uint32_t user = 0;
};
// False where the kernel does not say.
bool identify_peer(int socket, PeerIdentity* identity);

Descriptor local_socket();
int bind_or_connect(int socket, const std::string& name, bool listen); // 0 or an errno

} // namespace zero::comm
