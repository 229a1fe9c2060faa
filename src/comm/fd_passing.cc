// SPDX-License-Identifier: BSD-3-Clause
#include "comm/fd_passing.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace zero::comm {

bool send_message(int socket, const void* bytes, size_t length, int fd_a, int fd_b) {
  int fds[kPassedDescriptors];
  size_t count = 0;
  if (fd_a >= 0) fds[count++] = fd_a;
  if (fd_b >= 0) fds[count++] = fd_b;
  iovec part = {const_cast<void*>(bytes), length};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(fds))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (count > 0) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * count);
    std::memcpy(CMSG_DATA(header), fds, sizeof(int) * count);
  }
  for (int tries = 0; tries < 100; ++tries) {
    if (sendmsg(socket, &message, MSG_NOSIGNAL) >= 0) return true;
    if (errno != EAGAIN && errno != EINTR && errno != ENOBUFS) return false;
    pollfd writable = {socket, POLLOUT, 0};
    poll(&writable, 1, 20);
  }
  return false;
}

Received receive_message(int socket, void* bytes, size_t length,
                         Descriptor (&passed)[kPassedDescriptors]) {
  iovec part = {bytes, length};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kPassedDescriptors)] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t got;
  do {
    got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return errno == EAGAIN ? Received::kNothing : Received::kClosed;
  int next = 0;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(fd));
      if (next < kPassedDescriptors) {
        passed[next++] = Descriptor(fd);
      } else {
        ::close(fd);
      }
    }
  }
  const bool whole = static_cast<size_t>(got) == length && (message.msg_flags & MSG_TRUNC) == 0;
  return whole ? Received::kMessage : Received::kClosed;
}

} // namespace zero::comm
