// What a transfer of weights takes beside the plan: this program's own malloc stands before the C
// library's and keeps the most that was held at once.
// SPDX-License-Identifier: BSD-3-Clause
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "weights_rank.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LIBZERO_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define LIBZERO_SANITIZED 1
#endif
#endif

namespace {

std::atomic<int64_t> held{0};
std::atomic<int64_t> most{0};

[[maybe_unused]] void* took(void* memory) {
  if (memory == nullptr) return nullptr;
  const auto bytes = static_cast<int64_t>(malloc_usable_size(memory));
  const int64_t now = held.fetch_add(bytes) + bytes;
  int64_t before = most.load();
  while (before < now && !most.compare_exchange_weak(before, now)) {
  }
  return memory;
}
[[maybe_unused]] void gave(void* memory) {
  if (memory != nullptr) held.fetch_sub(static_cast<int64_t>(malloc_usable_size(memory)));
}

} // namespace

#ifndef LIBZERO_SANITIZED // which bring their own
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);

void* malloc(size_t bytes) {
  return took(__libc_malloc(bytes));
}
void* calloc(size_t items, size_t bytes) {
  return took(__libc_calloc(items, bytes));
}
void* realloc(void* memory, size_t bytes) {
  gave(memory);
  return took(__libc_realloc(memory, bytes));
}
void* memalign(size_t alignment, size_t bytes) {
  return took(__libc_memalign(alignment, bytes));
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  return took(__libc_memalign(alignment, bytes));
}
int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  void* const made = took(__libc_memalign(alignment, bytes));
  if (made == nullptr) return ENOMEM;
  *memory = made;
  return 0;
}
void free(void* memory) {
  gave(memory);
  __libc_free(memory);
}
}
#endif

namespace {

using namespace weights;

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kTensorBytes = 16 * kMiB;

std::vector<Param> large_model() {
  std::vector<Param> params;
  for (int i = 0; i < 6; ++i) {
    params.push_back({"layer." + std::to_string(i), {2048, kTensorBytes / 4 / 2048}});
  }
  return params;
}

// The most held beyond what was held before the call.
template <typename Call>
int64_t beyond(Call call) {
  const int64_t before = held.load();
  most.store(before);
  call();
  return most.load() - before;
}

Spec large_spec() {
  Spec spec;
  spec.stage = 3;
  spec.ranks = 4;
  spec.optimizer = R"({"type": "SGD", "params": {"lr": 1}})";
  spec.open_buckets = "1";
  spec.libzero = R"(, "live_parameters": 4194304)";
  return spec;
}

int64_t planned(zero_runtime* runtime) {
  zero_memory_info info;
  zero_memory_info_init(&info, sizeof(info));
  OK(zero_memory_usage(runtime, ZERO_PLACE_HOST, ZERO_MEMORY_TOTAL, &info));
  return static_cast<int64_t>(info.peak);
}

void a_transfer_takes_less_than_one_tensor_beside_the_plan(void**) {
#ifdef LIBZERO_SANITIZED
  skip();
#endif
  const Folder folder;
  const std::string path = folder.path("w.safetensors");
  // The file first, by a run that can hold it.
  Spec alone;
  alone.optimizer = R"({"type": "SGD", "params": {"lr": 1}})";
  run(alone, [&](Rank& self) {
    self.add_all(large_model(), true);
    self.shard();
    OK(zero_weights_export(self.runtime, path.c_str(), 0, 0));
    self.close();
  });
  run(large_spec(), [&](Rank& self) {
    self.add_all(large_model(), false);
    self.shard();
    const int64_t in =
        beyond([&] { OK(zero_weights_import(self.runtime, path.c_str(), nullptr)); });
    const int64_t out =
        beyond([&] { OK(zero_weights_export(self.runtime, folder.path("again").c_str(), 0, 0)); });
    EXPECT(in > 0 && out > 0); // it was counted
    EXPECT(in < kTensorBytes && out < kTensorBytes);
    self.close();
  });
  assert_true(read(folder.path("again")) == read(path));
}

// Four ranks start from a file that is larger than all that any of them ever holds.
void a_model_larger_than_the_memory_of_a_rank_starts_from_its_file(void**) {
#ifdef LIBZERO_SANITIZED
  skip();
#endif
  const Folder folder;
  const std::string path = folder.path("w.safetensors");
  const std::vector<Param> params = large_model();
  const int64_t model_bytes = kTensorBytes * static_cast<int64_t>(params.size());
  Spec alone;
  alone.optimizer = R"({"type": "SGD", "params": {"lr": 1}})";
  run(alone, [&](Rank& self) {
    self.add_all(params, true);
    self.shard();
    OK(zero_weights_export(self.runtime, path.c_str(), 0, 0));
    self.close();
  });
  run(large_spec(), [&](Rank& self) {
    const int64_t heap = beyond([&] {
      self.add_all(params, false);
      self.shard();
      OK(zero_weights_import(self.runtime, path.c_str(), nullptr));
    });
    if (planned(self.runtime) + heap >= model_bytes) {
      std::fprintf(stderr, "plan %lld, heap %lld, model %lld\n",
                   static_cast<long long>(planned(self.runtime)), static_cast<long long>(heap),
                   static_cast<long long>(model_bytes));
    }
    EXPECT(planned(self.runtime) + heap < model_bytes);
    // And has the values of the file.
    const zero_param_id last = self.find("layer.5");
    zero_buffer buffer;
    OK(zero_params_acquire(self.runtime, &last, 1, nullptr, &buffer));
    for (uint64_t i = 0; i < buffer.count; i += 4999) {
      EXPECT(static_cast<const float*>(buffer.data)[i] == initial(5, i));
    }
    OK(zero_params_release(self.runtime, &last, 1, 0, nullptr));
    self.close();
  });
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_transfer_takes_less_than_one_tensor_beside_the_plan),
      cmocka_unit_test(a_model_larger_than_the_memory_of_a_rank_starts_from_its_file),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
