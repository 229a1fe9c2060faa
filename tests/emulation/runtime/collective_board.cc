// SPDX-License-Identifier: BSD-3-Clause
#include "collective_board.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "device_memory.h"

namespace cuemu {
namespace {

constexpr uint64_t kHeaderBytes = 65536;

float bf16_value(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  memcpy(&value, &wide, 4);
  return value;
}
uint16_t bf16_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

struct Bf16 {
  uint16_t bits;
  operator float() const { return bf16_value(bits); }
  static Bf16 of(float value) { return {bf16_bits(value)}; }
};
// By arithmetic: scaled until the unit in the last place is 1, rounded to even, scaled back.
struct Fp16 {
  uint16_t bits;
  operator float() const {
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    double size =
        exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    if (exponent == 31) size = mantissa == 0 ? INFINITY : NAN;
    return static_cast<float>((bits & 0x8000) != 0 ? -size : size);
  }
  static Fp16 of(float value) {
    const uint32_t sign = std::signbit(value) ? 0x8000 : 0;
    const double size = std::fabs(static_cast<double>(value));
    if (std::isnan(value)) return {static_cast<uint16_t>(sign | 0x7e00)};
    if (size == 0) return {static_cast<uint16_t>(sign)};
    if (size >= 65520) return {static_cast<uint16_t>(sign | 0x7c00)};
    int exponent = 0;
    std::frexp(size, &exponent);
    exponent = std::max(exponent, -13); // below: subnormal
    const auto units = static_cast<uint32_t>(std::nearbyint(std::ldexp(size, 11 - exponent)));
    return {static_cast<uint16_t>(sign + static_cast<uint32_t>(exponent + 13) * 1024 + units)};
  }
};

template <typename T>
T combine(ncclRedOp_t op, T a, T b) {
  switch (op) {
    case ncclProd:
      return static_cast<T>(a * b);
    case ncclMax:
      return a > b ? a : b;
    case ncclMin:
      return a < b ? a : b;
    default:
      return static_cast<T>(a + b);
  }
}
Bf16 combine(ncclRedOp_t op, Bf16 a, Bf16 b) {
  return Bf16::of(combine<float>(op, a, b));
}
Fp16 combine(ncclRedOp_t op, Fp16 a, Fp16 b) {
  return Fp16::of(combine<float>(op, a, b));
}

template <typename T>
T divided(T sum, int ranks) {
  return static_cast<T>(sum / static_cast<T>(ranks));
}
Bf16 divided(Bf16 sum, int ranks) {
  return Bf16::of(static_cast<float>(sum) / static_cast<float>(ranks));
}
Fp16 divided(Fp16 sum, int ranks) {
  return Fp16::of(static_cast<float>(sum) / static_cast<float>(ranks));
}

template <typename T>
void reduce_as(const Board& board, const Move& move, int owner, uint64_t first, uint64_t count,
               void* to) {
  const int ranks = board.ranks();
  T* const out = static_cast<T*>(to);
  for (uint64_t i = 0; i < count; ++i) {
    const auto of = [&](int hop) {
      const int rank = (owner + 1 + hop) % ranks;
      return reinterpret_cast<const T*>(board.posted(rank))[first + i];
    };
    T sum = of(0);
    for (int hop = 1; hop < ranks; ++hop) sum = combine(move.op, of(hop), sum);
    out[i] = move.op == ncclAvg ? divided(sum, ranks) : sum;
  }
}

} // namespace

uint64_t type_bytes(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    default:
      return 8;
  }
}

void reduce_posted(const Board& board, const Move& move, int owner, uint64_t first, uint64_t count,
                   void* to) {
  switch (move.type) {
    case ncclInt8:
      return reduce_as<int8_t>(board, move, owner, first, count, to);
    case ncclUint8:
      return reduce_as<uint8_t>(board, move, owner, first, count, to);
    case ncclInt32:
      return reduce_as<int32_t>(board, move, owner, first, count, to);
    case ncclUint32:
      return reduce_as<uint32_t>(board, move, owner, first, count, to);
    case ncclInt64:
      return reduce_as<int64_t>(board, move, owner, first, count, to);
    case ncclUint64:
      return reduce_as<uint64_t>(board, move, owner, first, count, to);
    case ncclFloat16:
      return reduce_as<Fp16>(board, move, owner, first, count, to);
    case ncclBfloat16:
      return reduce_as<Bf16>(board, move, owner, first, count, to);
    case ncclFloat32:
      return reduce_as<float>(board, move, owner, first, count, to);
    case ncclFloat64:
      return reduce_as<double>(board, move, owner, first, count, to);
  }
}

Board::Board(const std::string& name, int ranks, int rank, int device)
    : ranks_(ranks), rank_(rank) {
  static_assert(sizeof(Header) <= kHeaderBytes);
  bytes_ = kHeaderBytes + static_cast<uint64_t>(ranks) * kPostBytes +
           static_cast<uint64_t>(ranks) * static_cast<uint64_t>(ranks) * kPairBytes;
  const int file = shm_open(name.c_str(), O_RDWR | O_CREAT, 0600);
  // New pages are zeros, and so is the header, whoever comes first.
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes_)) != 0) fault("no %s", name.c_str());
  void* const memory =
      mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  close(file);
  if (memory == MAP_FAILED) fault("no addresses for %s", name.c_str());
  madvise(memory, bytes_, MADV_DONTDUMP);
  header_ = static_cast<Header*>(memory);
  data_ = static_cast<char*>(memory) + kHeaderBytes;
  header_->rank[rank].device = device;
  if (header_->attached.fetch_add(1) + 1 == ranks) shm_unlink(name.c_str());
}

Board::~Board() {
  munmap(header_, bytes_);
}

bool Board::device_taken_twice() const {
  for (int a = 0; a < ranks_; ++a) {
    for (int b = 0; b < a; ++b) {
      if (header_->rank[a].device == header_->rank[b].device) return true;
    }
  }
  return false;
}

bool Board::may_post(uint64_t sequence) const {
  for (int r = 0; r < ranks_; ++r) {
    if (header_->rank[r].finished.load() + 1 < sequence) return false;
  }
  return true;
}
void Board::post(uint64_t sequence, const Move& move, const void* from, uint64_t bytes) {
  if (bytes > kPostBytes)
    fault("a collective of %llu bytes", static_cast<unsigned long long>(bytes));
  Rank& own = header_->rank[rank_];
  own.move = move;
  memcpy(data_ + static_cast<uint64_t>(rank_) * kPostBytes, from, bytes);
  own.posted.store(sequence);
}
bool Board::all_posted(uint64_t sequence) const {
  for (int r = 0; r < ranks_; ++r) {
    if (header_->rank[r].posted.load() < sequence) return false;
  }
  return true;
}
bool Board::all_agree() const {
  for (int r = 0; r < ranks_; ++r) {
    if (!(header_->rank[r].move == header_->rank[rank_].move)) return false;
  }
  return true;
}

char* Board::pair_data(int from, int to) const {
  return data_ + static_cast<uint64_t>(ranks_) * kPostBytes +
         static_cast<uint64_t>(from * ranks_ + to) * kPairBytes;
}
bool Board::may_send(int peer, uint64_t sequence) const {
  return header_->pair[rank_][peer].received.load() + 1 >= sequence;
}
void Board::send(int peer, uint64_t sequence, const void* from, uint64_t bytes) {
  if (bytes > kPairBytes) fault("a send of %llu bytes", static_cast<unsigned long long>(bytes));
  Pair& pair = header_->pair[rank_][peer];
  pair.bytes = bytes;
  if (bytes != 0) memcpy(pair_data(rank_, peer), from, bytes);
  pair.sent.store(sequence);
}
bool Board::may_receive(int peer, uint64_t sequence, uint64_t bytes) const {
  const Pair& pair = header_->pair[peer][rank_];
  return pair.sent.load() >= sequence && pair.bytes == bytes;
}
void Board::receive(int peer, uint64_t sequence, void* to, uint64_t bytes) {
  if (bytes != 0) memcpy(to, pair_data(peer, rank_), bytes);
  header_->pair[peer][rank_].received.store(sequence);
}

bool Board::wanted() const {
  const Rank& own = header_->rank[rank_];
  for (int r = 0; r < ranks_; ++r) {
    if (header_->rank[r].posted.load() > own.finished.load()) return true;
    const Pair& pair = header_->pair[r][rank_];
    if (pair.sent.load() > pair.received.load()) return true;
  }
  return false;
}

void Board::split_post(uint64_t number, int color, int key) {
  Rank& own = header_->rank[rank_];
  own.color = color;
  own.key = key;
  own.split.store(number);
}
bool Board::split_ready(uint64_t number) const {
  for (int r = 0; r < ranks_; ++r) {
    if (header_->rank[r].split.load() < number) return false;
  }
  return true;
}
void Board::split_of(int rank, int* color, int* key) const {
  *color = header_->rank[rank].color;
  *key = header_->rank[rank].key;
}

} // namespace cuemu
