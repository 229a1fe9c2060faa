// SPDX-License-Identifier: BSD-3-Clause
#include "memory/process_memory.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
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

// Of the group with this folder: its limit, 0: none, and what of it is left.
struct GroupMemory {
  uint64_t limit = 0;
  uint64_t available = 0;
};

GroupMemory group_memory_at(const std::string& folder) {
  GroupMemory group;
  group.limit = number_at(head_of(folder + "/memory.max"));
  if (group.limit == 0) return group;
  const uint64_t used = number_at(head_of(folder + "/memory.current"));
  const std::string parts = "\n" + head_of(folder + "/memory.stat");
  uint64_t caches = 0;
  for (const char* name : {"\nactive_file", "\ninactive_file"}) {
    const size_t at = parts.find(name);
    if (at != std::string::npos) {
      caches += number_at(std::string_view(parts).substr(parts.find(' ', at)));
    }
  }
  const uint64_t held = used - std::min(used, caches);
  group.available = group.limit - std::min(group.limit, held);
  return group;
}

// The tightest of this process's group and those above it.
GroupMemory group_memory() {
  const std::string groups = head_of("/proc/self/cgroup");
  const size_t unified = groups.find("0::/");
  if (unified == std::string::npos) return group_memory_at("/sys/fs/cgroup");
  const size_t begin = unified + 3;
  std::string path = groups.substr(begin, groups.find('\n', begin) - begin);
  GroupMemory tightest;
  for (;;) {
    const GroupMemory group = group_memory_at("/sys/fs/cgroup" + path);
    if (group.limit != 0) {
      const bool first = tightest.limit == 0;
      tightest.limit = first ? group.limit : std::min(tightest.limit, group.limit);
      tightest.available = first ? group.available : std::min(tightest.available, group.available);
    }
    if (path.empty()) return tightest;
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
  const GroupMemory group = group_memory();
  memory.group_limit_bytes = group.limit;
  memory.group_available_bytes = group.available;
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    memory.address_limit_bytes = limit.rlim_cur;
  }
  return memory;
}

} // namespace zero::memory
