// SPDX-License-Identifier: BSD-3-Clause
#include "memory/process_memory.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <charconv>
#include <string>
#include <string_view>

namespace zero::memory {
namespace {

// The beginning of a file, "" where it cannot be read.
std::string head_of(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  char bytes[8192];
  const ssize_t length = read(file, bytes, sizeof(bytes));
  close(file);
  return std::string(bytes, length > 0 ? static_cast<size_t>(length) : 0);
}

uint64_t number_at(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return 0;
  uint64_t value = 0;
  const auto result = std::from_chars(text.data() + first, text.data() + text.size(), value);
  return result.ec == std::errc() ? value : 0;
}

// "Name:   123 kB" in bytes.
uint64_t kilobytes(const std::string& text, const std::string& name) {
  const size_t at = text.find(name);
  return at == std::string::npos
             ? 0
             : 1024 * number_at(std::string_view(text).substr(at + name.size()));
}

// The tightest of this process's group and those above it.
uint64_t group_limit() {
  const std::string groups = head_of("/proc/self/cgroup");
  const size_t unified = groups.find("0::/");
  if (unified == std::string::npos) return number_at(head_of("/sys/fs/cgroup/memory.max"));
  const size_t begin = unified + 3;
  std::string path = groups.substr(begin, groups.find('\n', begin) - begin);
  uint64_t least = 0;
  for (;;) {
    const uint64_t limit = number_at(head_of("/sys/fs/cgroup" + path + "/memory.max"));
    if (limit != 0 && (least == 0 || limit < least)) least = limit;
    if (path.empty()) return least;
    path.resize(path.rfind('/'));
  }
}

} // namespace

ProcessMemory read_process_memory() {
  ProcessMemory memory;
  const std::string status = head_of("/proc/self/status");
  memory.private_bytes = kilobytes(status, "RssAnon:") + kilobytes(status, "RssFile:");
  const std::string machine = head_of("/proc/meminfo");
  memory.machine_bytes = kilobytes(machine, "MemTotal:");
  memory.available_bytes = kilobytes(machine, "MemAvailable:");
  memory.group_limit_bytes = group_limit();
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    memory.address_limit_bytes = limit.rlim_cur;
  }
  return memory;
}

} // namespace zero::memory
