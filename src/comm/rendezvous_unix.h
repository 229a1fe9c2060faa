// How local ranks find each other: an abstract Unix socket named by user, job and group.  Rank 0
// listens, the others connect; each must be of the same user.  Nothing is left in any file system.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/descriptor.h"
#include "comm/local_peers.h"

namespace zero::comm {

constexpr uint32_t kLocalProtocol = 1;

struct LocalParty {
  Descriptor control; // memfd of control_bytes(size), rank 0's making
  std::vector<LocalPeer> peers; // by rank; a socket to each
};

// The socket's name, without the leading NUL of abstract names; always fits.
std::string local_socket_name(const std::string& job, const std::string& group, uint32_t user);

// Throws COMM_TIMEOUT naming the ranks that did not come, COMM_MISMATCH where ranks disagree on
// the size or one comes twice, COMM where one dies meanwhile; the same error on all that came.
// group is only for the sentences.
LocalParty meet_local_ranks(const std::string& socket_name, const std::string& group, int32_t rank,
                            int32_t size, int64_t timeout_ns);

} // namespace zero::comm
