// Host kernels against plain loops over the same streams and the same memory, interleaved, medians:
//   bench_kernels [million elements] [repeats] [case] [threads]
// Many short passes rather than few long ones: on a busy machine most of them are not interrupted.
// One JSON object a line; value and baseline are GB/s of the bytes that must move.
// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "kernels/host/blocked_update.h"
#include "kernels/kernels.h"
#include "plain_loops.h"

namespace {

using zero::device::Device;
namespace kernels = zero::kernels;

constexpr int kWidest = 2;

// Everything a case may touch: six streams of the longest kind, and the sums of two threads.
struct Streams {
  uint64_t count;
  float* f[6];
  kernels::ExactSum sums[kWidest];
  const kernels::KernelTable* table;

  uint16_t* half(int index, uint64_t at) const {
    return reinterpret_cast<uint16_t*>(f[index]) + at;
  }
};

using Body = void (*)(Streams& s, uint64_t begin, uint64_t end, int32_t thread);

kernels::AdamConstants adam_constants() {
  kernels::AdamConstants c = {};
  c.grad_scale = 0.5f;
  c.beta1 = 0.9f;
  c.one_minus_beta1 = 0.1f;
  c.beta2 = 0.999f;
  c.one_minus_beta2 = 0.001f;
  c.epsilon = 1e-8f;
  c.step_size = 1e-4f;
  c.inverse_root_correction2 = 1.1f;
  c.decay_factor = 0.9999f;
  c.decoupled = true;
  return c;
}

void adam(Streams& s, uint64_t begin, uint64_t end, int32_t) {
  kernels::UpdateStreams u;
  u.master = s.f[0] + begin;
  u.grad = s.f[1] + begin;
  u.state[0] = s.f[2] + begin;
  u.state[1] = s.f[3] + begin;
  u.count = end - begin;
  s.table->adam(u, adam_constants());
}

void adam_plain(Streams& s, uint64_t begin, uint64_t end, int32_t) {
  plain_update(s.f[0] + begin, s.f[1] + begin, s.f[2] + begin, s.f[3] + begin, end - begin);
}

void adam_16(Streams& s, uint64_t begin, uint64_t end, int32_t) {
  kernels::UpdateStreams u;
  u.master = s.f[0] + begin;
  u.model = s.half(4, begin);
  u.model_dtype = ZERO_DTYPE_BF16;
  u.grad = s.half(5, begin);
  u.grad_dtype = ZERO_DTYPE_BF16;
  u.state[0] = s.f[2] + begin;
  u.state[1] = s.f[3] + begin;
  u.count = end - begin;
  s.table->adam(u, adam_constants());
}

void adam_16_plain(Streams& s, uint64_t begin, uint64_t end, int32_t) {
  plain_update_16(s.f[0] + begin, s.half(4, begin), s.half(5, begin), s.f[2] + begin,
                  s.f[3] + begin, end - begin);
}

void sgd(Streams& s, uint64_t begin, uint64_t end, int32_t) {
  kernels::UpdateStreams u;
  u.master = s.f[0] + begin;
  u.grad = s.f[1] + begin;
  u.state[0] = s.f[2] + begin;
  u.count = end - begin;
  s.table->sgd(u, {1.0f, 1e-4f, 0.9f, 1.0f, 0.01f, false, false});
}

kernels::UpdateStreams fp32_streams(const Streams& s, uint64_t begin, uint64_t end) {
  kernels::UpdateStreams u;
  u.master = s.f[0] + begin;
  u.grad = s.f[1] + begin;
  u.state[0] = s.f[2] + begin;
  u.state[1] = s.f[3] + begin;
  u.count = end - begin;
  return u;
}

void adagrad(Streams& s, uint64_t begin, uint64_t end, int32_t) {
  s.table->adagrad(fp32_streams(s, begin, end), {1.0f, 1e-4f, 1e-10f, 0.01f});
}
void lion(Streams& s, uint64_t begin, uint64_t end, int32_t) {
  s.table->lion(fp32_streams(s, begin, end), {1.0f, 0.9f, 0.1f, 0.99f, 0.01f, 1e-4f, 0.9999f});
}
// The direction in the gradient's place.
void lamb(Streams& s, uint64_t begin, uint64_t end, int32_t) {
  s.table->lamb(fp32_streams(s, begin, end),
                {1.0f, 0.9f, 0.1f, 0.999f, 0.001f, 1e-8f, 0.01f, false}, s.f[1] + begin);
}
void muon(Streams& s, uint64_t begin, uint64_t end, int32_t) {
  s.table->muon(fp32_streams(s, begin, end), {1.0f, 0.95f, 0.05f}, s.f[1] + begin);
}
void apply(Streams& s, uint64_t begin, uint64_t end, int32_t) {
  s.table->apply(fp32_streams(s, begin, end), {1e-6f, 0.9999f}, s.f[1] + begin);
}

void update_adam(const kernels::KernelTable& table, const kernels::UpdateStreams& streams,
                 const void* constants) {
  table.adam(streams, *static_cast<const kernels::AdamConstants*>(constants));
}

// bf16 gradient, parameter and states, the master in a remainder: 2 + 4 + 8 + 4 bytes.
void adam_remainder(Streams& s, uint64_t begin, uint64_t end, int32_t) {
  const kernels::AdamConstants constants = adam_constants();
  kernels::WideStreams u;
  u.remainder = s.half(0, begin);
  u.model = s.half(4, begin);
  u.model_dtype = ZERO_DTYPE_BF16;
  u.grad = s.half(5, begin);
  u.grad_dtype = ZERO_DTYPE_BF16;
  u.state[0] = s.half(2, begin);
  u.state[1] = s.half(3, begin);
  u.state_dtype = ZERO_DTYPE_BF16;
  u.count = end - begin;
  kernels::update_blocked(*s.table, u, update_adam, &constants);
}

void reduce_into(Streams& s, uint64_t begin, uint64_t end, int32_t thread, zero_dtype dtype,
                 bool with_norm) {
  const uint64_t size = dtype == ZERO_DTYPE_FP32 ? 4 : 2;
  const void* const from[2] = {reinterpret_cast<char*>(s.f[0]) + begin * size,
                               reinterpret_cast<char*>(s.f[1]) + begin * size};
  kernels::ReduceArguments a;
  a.contributions = from;
  a.ranks = 2;
  a.contribution_dtype = dtype;
  a.scale = 0.5f;
  a.accumulate = reinterpret_cast<char*>(s.f[2]) + begin * size;
  a.accumulate_dtype = dtype;
  a.count = end - begin;
  if (with_norm) a.norm = &s.sums[thread];
  s.table->reduce(a);
}

void reduce(Streams& s, uint64_t begin, uint64_t end, int32_t thread) {
  reduce_into(s, begin, end, thread, ZERO_DTYPE_FP32, false);
}
void reduce_norm(Streams& s, uint64_t begin, uint64_t end, int32_t thread) {
  reduce_into(s, begin, end, thread, ZERO_DTYPE_FP32, true);
}
void reduce_16(Streams& s, uint64_t begin, uint64_t end, int32_t thread) {
  reduce_into(s, begin, end, thread, ZERO_DTYPE_BF16, false);
}
void reduce_16_norm(Streams& s, uint64_t begin, uint64_t end, int32_t thread) {
  reduce_into(s, begin, end, thread, ZERO_DTYPE_BF16, true);
}

void reduce_plain(Streams& s, uint64_t begin, uint64_t end, int32_t) {
  plain_reduce(s.f[0] + begin, s.f[1] + begin, s.f[2] + begin, end - begin);
}
void reduce_16_plain(Streams& s, uint64_t begin, uint64_t end, int32_t) {
  plain_reduce_16(s.half(0, begin), s.half(1, begin), s.half(2, begin), end - begin);
}

void narrow(Streams& s, uint64_t begin, uint64_t end, int32_t) {
  s.table->cast(s.f[0] + begin, ZERO_DTYPE_FP32, s.half(2, begin), ZERO_DTYPE_BF16, end - begin);
}
void narrow_plain(Streams& s, uint64_t begin, uint64_t end, int32_t) {
  plain_narrow(s.f[0] + begin, s.half(2, begin), end - begin);
}
void widen(Streams& s, uint64_t begin, uint64_t end, int32_t) {
  s.table->cast(s.half(0, begin), ZERO_DTYPE_BF16, s.f[2] + begin, ZERO_DTYPE_FP32, end - begin);
}
void widen_plain(Streams& s, uint64_t begin, uint64_t end, int32_t) {
  plain_widen(s.half(0, begin), s.f[2] + begin, end - begin);
}

double seconds() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Call {
  Streams* streams;
  Body body;
};

double time_once(Device& device, Streams& streams, Body body) {
  Call call = {&streams, body};
  const double start = seconds();
  device.parallel(
      streams.count, kernels::kChunk,
      [](void* context, uint64_t begin, uint64_t end, int32_t index) {
        const Call& c = *static_cast<Call*>(context);
        c.body(*c.streams, begin, end, index);
      },
      &call);
  return seconds() - start;
}

// Numbers around 1e-3, read as fp32 or as pairs of bf16: they neither overflow nor become denormal
// however often a case runs.
void fill(Streams& s) {
  for (float* stream : s.f) {
    uint32_t state = 1;
    for (uint64_t i = 0; i < s.count; i++) {
      state = state * 1664525u + 1013904223u;
      const uint32_t bits = 0x3a803a80u | (state >> 8 & 0x007f007fu);
      std::memcpy(stream + i, &bits, sizeof(bits));
    }
  }
}

// body against baseline, a repeat of each in turn.
void compare(Device& device, Streams& s, int repeats, const char* name, uint64_t bytes, Body body,
             Body baseline) {
  fill(s);
  std::vector<double> mine, plain, ratios;
  for (int k = 0; k <= repeats; k++) {
    const double a = time_once(device, s, baseline);
    const double b = time_once(device, s, body);
    if (k == 0) continue; // warm up
    plain.push_back(a);
    mine.push_back(b);
    ratios.push_back(a / b);
  }
  const double moved = static_cast<double>(bytes * s.count) * 1e-9;
  std::printf(
      "{\"name\":\"%s_%s_%d_threads\",\"value\":%.2f,\"unit\":\"GB/s\",\"baseline\":%.2f,"
      "\"ratio\":%.3f}\n",
      name, s.table->name, static_cast<int>(device.parallel_width()), moved / median(mine),
      moved / median(plain), median(ratios));
  std::fflush(stdout);
}

// Muon's orthogonalisation on one thread: its time, and multiplications and additions a second.
void orthogonalise(Streams& s, int repeats, uint64_t rows, uint64_t cols) {
  if (rows * cols > s.count || kernels::newton_schulz_workspace(rows, cols) > s.count) return;
  const double n = static_cast<double>(std::min(rows, cols));
  const double k = static_cast<double>(std::max(rows, cols));
  const double operations = 5 * (4 * n * n * k + 2 * n * n * n); // as if none were saved
  std::vector<double> taken;
  fill(s);
  for (int r = 0; r < std::max(repeats / 10, 1); r++) {
    const double start = seconds();
    kernels::newton_schulz_by(*s.table, s.f[0], rows, cols, s.f[1]);
    taken.push_back(seconds() - start);
  }
  std::printf("{\"name\":\"newton_schulz_%d_by_%d_%s\",\"value\":%.4g,\"unit\":\"ms\"}\n",
              static_cast<int>(rows), static_cast<int>(cols), s.table->name, median(taken) * 1e3);
  std::printf("{\"name\":\"newton_schulz_%d_by_%d_%s_rate\",\"value\":%.4g,\"unit\":\"GFLOP/s\"}\n",
              static_cast<int>(rows), static_cast<int>(cols), s.table->name,
              operations / median(taken) * 1e-9);
  std::fflush(stdout);
}

} // namespace

int main(int argc, char** argv) {
  const uint64_t millions = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 8;
  const int repeats = argc > 2 ? std::atoi(argv[2]) : 61;
  const std::string only = argc > 3 ? argv[3] : "";
  const int only_threads = argc > 4 ? std::atoi(argv[4]) : 0;
  Streams s;
  s.count = millions * 1000000 / 256 * 256;
  s.table = &kernels::host_kernels();
  for (kernels::ExactSum& sum : s.sums) kernels::exact_sum_clear(&sum);
  const std::unique_ptr<Device> memory = zero::device::make_host_device(1);
  for (float*& stream : s.f) stream = static_cast<float*>(memory->allocate(s.count * 4));
  for (int threads = 1; threads <= kWidest; threads++) {
    if (only_threads != 0 && threads != only_threads) continue;
    const std::unique_ptr<Device> device = zero::device::make_host_device(threads);
    const auto run = [&](const char* name, uint64_t bytes, Body body, Body baseline) {
      if (!only.empty() && only != name) return;
      compare(*device, s, repeats, name, bytes, body, baseline);
    };
    run("adamw", 28, adam, adam_plain);
    run("adamw_bf16", 28, adam_16, adam_16_plain);
    run("sgd_momentum_against_adamw_streams", 20, sgd, adam_plain);
    run("adagrad_against_adamw_streams", 20, adagrad, adam_plain);
    run("lion_against_adamw_streams", 20, lion, adam_plain);
    run("lamb_direction_against_adamw_streams", 28, lamb, adam_plain);
    run("muon_direction_against_adamw_streams", 16, muon, adam_plain);
    run("apply_against_adamw_streams", 12, apply, adam_plain);
    run("adamw_bf16_states_and_remainder_against_adamw_bf16", 18, adam_remainder, adam_16);
    run("reduce_2", 12, reduce, reduce_plain);
    run("reduce_2_norm", 12, reduce_norm, reduce_plain);
    run("norm_cost_of_reduce_2", 12, reduce_norm, reduce);
    run("reduce_2_bf16", 6, reduce_16, reduce_16_plain);
    run("norm_cost_of_reduce_2_bf16", 6, reduce_16_norm, reduce_16);
    run("cast_fp32_bf16", 6, narrow, narrow_plain);
    run("cast_bf16_fp32", 6, widen, widen_plain);
  }
  if (only.empty() || only == "newton_schulz") {
    orthogonalise(s, repeats, 768, 768);
    orthogonalise(s, repeats, 3072, 768);
  }
  for (float* stream : s.f) memory->release(stream, s.count * 4);
  return 0;
}
