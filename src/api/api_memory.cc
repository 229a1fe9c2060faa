// zero.h, sections 12 and 13: memory and log.
// SPDX-License-Identifier: BSD-3-Clause
#include "api/api_values.h"
#include "api/growing.h"
#include "api/handles.h"

using namespace zero::api; // the C functions below are outside of any namespace

void zero_memory_info_init(zero_memory_info* info, uint32_t struct_size) {
  init_struct(info, struct_size, zero_memory_info{});
}

zero_status zero_memory_usage(const zero_runtime* runtime, zero_place place, zero_memory_use use,
                              zero_memory_info* info) {
  return guard([&] {
    require(runtime, "runtime");
    check_struct_size(info, "info");
    check_place_and_use(place, use);
    const zero::memory::Ledger& ledger = runtime->runtime->ledger();
    zero_memory_info out{};
    out.planned = ledger.planned(place, use);
    out.current = ledger.current(place, use);
    out.peak = ledger.peak(place, use);
    write_struct(info, out);
  });
}

zero_status zero_memory_reset_peak(zero_runtime* runtime) {
  return guard([&] {
    require(runtime, "runtime");
    runtime->runtime->ledger().reset_peak();
  });
}

zero_status zero_memory_allocate(zero_runtime* runtime, zero_place place, uint64_t bytes,
                                 uint64_t alignment, void** memory) {
  return guard([&] {
    require(runtime, "runtime");
    require(memory, "memory");
    *memory = runtime->runtime->allocate_memory(place, bytes, alignment);
  });
}

void zero_memory_free(zero_runtime* runtime, void* memory) {
  if (runtime != nullptr) runtime->runtime->free_memory(memory);
}

zero_status zero_memory_explain(const zero_runtime* runtime, zero_place place,
                                uint64_t failed_bytes, char* buffer, uint64_t capacity,
                                uint64_t* length) {
  return guard([&] {
    require(runtime, "runtime");
    check_place_and_use(place, ZERO_MEMORY_TOTAL);
    write_text(runtime->runtime->explain_memory(place, failed_bytes), buffer, capacity, length);
  });
}

zero_status zero_log_read(zero_runtime* runtime, zero_log_level* level, char* buffer,
                          uint64_t capacity, uint64_t* length) {
  return guard([&] {
    require(runtime, "runtime");
    require(level, "level");
    zero_log_level found = 0;
    std::string text;
    if (!runtime->runtime->log().front(&found, &text)) {
      zero::fail(ZERO_ERR_NOT_FOUND, "the log holds no unread line");
    }
    write_text(text, buffer, capacity, length);
    *level = found;
    runtime->runtime->log().pop();
  });
}
