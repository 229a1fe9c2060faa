// One message over a Unix SOCK_SEQPACKET socket: some bytes and up to two descriptors.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

#include "comm/descriptor.h"

namespace zero::comm {

constexpr int kPassedDescriptors = 2;

enum class Received { kMessage, kNothing, kClosed };

// Sockets are non-blocking.  False when the peer is gone; waits (bounded) while its queue is full.
bool send_message(int socket, const void* bytes, size_t length, int fd_a = -1, int fd_b = -1);

// Messages of another length than expected count as closed: the other side is not one of us.
Received receive_message(int socket, void* bytes, size_t length,
                         Descriptor (&passed)[kPassedDescriptors]);

} // namespace zero::comm
