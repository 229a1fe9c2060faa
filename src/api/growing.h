// Growing structs: struct_size first, fields only appended.  A caller may be older (we fill what he
// lacks with defaults) or newer (what we do not know must be 0).
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstring>

#include "api/wall.h"

namespace zero::api {

// For every ..._init: defaults into the first size bytes, zeros behind what this library knows.
template <typename Struct>
void init_struct(Struct* out, uint32_t size, Struct defaults) noexcept {
  if (out == nullptr || size < sizeof(uint32_t)) return;
  defaults.struct_size = size;
  std::memset(static_cast<void*>(out), 0, size);
  std::memcpy(static_cast<void*>(out), &defaults, std::min<size_t>(size, sizeof(Struct)));
}

template <typename Struct>
void check_struct_size(const Struct* in, const char* name) {
  require(in, name);
  if (in->struct_size < sizeof(uint32_t)) {
    fail(ZERO_ERR_INVALID_ARGUMENT,
         "%s->struct_size is %u, expected the size that its init function was given", name,
         in->struct_size);
  }
}

// in as this library knows it; NULL where name may be left out is the caller's business.
template <typename Struct>
Struct read_struct(const Struct* in, const char* name, const Struct& defaults) {
  check_struct_size(in, name);
  Struct known = defaults;
  std::memcpy(static_cast<void*>(&known), in, std::min<size_t>(in->struct_size, sizeof(Struct)));
  const auto* bytes = reinterpret_cast<const unsigned char*>(in);
  for (size_t i = sizeof(Struct); i < in->struct_size; ++i) {
    if (bytes[i] == 0) continue;
    fail(ZERO_ERR_UNSUPPORTED,
         "%s: the byte at %zu is not 0: a field of a newer version was set, this library knows %zu "
         "bytes",
         name, i, sizeof(Struct));
  }
  known.struct_size = sizeof(Struct);
  return known;
}

// Writes what both know; struct_size stays the caller's.
template <typename Struct>
void write_struct(Struct* out, const Struct& from) {
  const uint32_t size = out->struct_size;
  std::memcpy(static_cast<void*>(out), &from, std::min<size_t>(size, sizeof(Struct)));
  out->struct_size = size;
}

} // namespace zero::api
