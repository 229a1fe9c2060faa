// SPDX-License-Identifier: BSD-3-Clause
#include "comm/streaming_copy.h"

#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace zero::comm {

// The C library streams only beyond a share of the last cache, and some machines report hundreds
// of MB of that.
void copy_streaming(void* dst, const void* src, uint64_t bytes) {
#if defined(__SSE2__)
  constexpr uint64_t kLine = 64;
  constexpr uint64_t kWorthIt = 256 * 1024;
  if (bytes >= kWorthIt) {
    auto* to = static_cast<char*>(dst);
    const auto* from = static_cast<const char*>(src);
    const uint64_t head = (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine;
    std::memcpy(to, from, head);
    to += head;
    from += head;
    bytes -= head;
    for (; bytes >= kLine; bytes -= kLine, to += kLine, from += kLine) {
      const auto* const in = reinterpret_cast<const __m128i*>(from);
      auto* const out = reinterpret_cast<__m128i*>(to);
      const __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1);
      const __m128i c = _mm_loadu_si128(in + 2), d = _mm_loadu_si128(in + 3);
      _mm_stream_si128(out, a);
      _mm_stream_si128(out + 1, b);
      _mm_stream_si128(out + 2, c);
      _mm_stream_si128(out + 3, d);
    }
    _mm_sfence(); // ordered before whatever tells a peer that the bytes are there
    std::memcpy(to, from, bytes);
    return;
  }
#endif
  std::memcpy(dst, src, bytes);
}

} // namespace zero::comm
