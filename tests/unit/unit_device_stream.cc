// Streams of the host device: order, tickets, a full queue, and the end of a stream.
// SPDX-License-Identifier: BSD-3-Clause
#include <atomic>
#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "base/error.h"
#include "device/device.h"
#include "device/host_stream.h"

extern "C" {
#include <cmocka.h> // last: it has a macro named fail
}

namespace {

using zero::device::make_host_device;
using zero::device::QueueStream;
using zero::device::Stream;

// Written by tasks without any lock: the stream's order is what makes that right.
struct Record {
  std::vector<uint64_t> seen;
  static void note(void* context, uint64_t first, uint64_t second) {
    static_cast<Record*>(context)->seen.push_back(first * 1000000 + second);
  }
};

struct Gate {
  std::atomic<bool> open{false};
  std::atomic<bool> entered{false};
  static void pass(void* context, uint64_t, uint64_t) {
    Gate* const gate = static_cast<Gate*>(context);
    gate->entered = true;
    while (!gate->open) std::this_thread::yield();
  }
};

void tasks_run_in_the_order_of_submission(void**) {
  const auto device = make_host_device(1);
  for (const bool inline_stream : {false, true}) {
    Record record;
    const uint64_t count = 3 * QueueStream::kCapacity + 5; // round the ring
    record.seen.reserve(count);
    const auto stream = device->create_stream(inline_stream);
    for (uint64_t i = 0; i < count; i++) {
      assert_true(stream->submit(Record::note, &record, 7, i) == i + 1);
    }
    stream->drain();
    assert_true(stream->last_ticket() == count);
    assert_true(stream->done(count));
    assert_int_equal(record.seen.size(), count);
    for (uint64_t i = 0; i < count; i++) assert_true(record.seen[i] == 7000000 + i);
  }
}

void a_ticket_is_done_when_its_task_and_all_before_it_have_run(void**) {
  const auto stream = make_host_device(1)->create_stream(false);
  Record record;
  Gate gate;
  assert_true(stream->last_ticket() == 0);
  assert_true(stream->done(0));
  stream->wait(0);
  const uint64_t first = stream->submit(Record::note, &record, 1, 1);
  const uint64_t gated = stream->submit(Gate::pass, &gate, 0, 0);
  const uint64_t behind = stream->submit(Record::note, &record, 2, 2);
  stream->wait(first);
  assert_true(stream->done(first));
  assert_int_equal(record.seen.size(), 1); // nothing runs behind the gate: no race
  assert_false(stream->done(gated));
  assert_false(stream->done(behind));
  gate.open = true;
  stream->wait(behind);
  assert_true(stream->done(gated));
  assert_true(stream->done(behind));
  assert_int_equal(record.seen.size(), 2);
}

void submit_blocks_while_the_queue_is_full_and_no_longer(void**) {
  const auto stream = make_host_device(1)->create_stream(false);
  Record record;
  Gate gate;
  stream->submit(Gate::pass, &gate, 0, 0);
  while (!gate.entered) std::this_thread::yield();
  // The gate's own place counts until it has run.
  for (uint64_t i = 1; i < QueueStream::kCapacity; i++) {
    stream->submit(Record::note, &record, 0, i);
  }
  std::atomic<bool> through{false};
  std::thread one_more([&] {
    stream->submit(Record::note, &record, 0, QueueStream::kCapacity);
    through = true;
  });
  for (int i = 0; i < 1000; i++) std::this_thread::yield();
  assert_false(through);
  assert_true(stream->last_ticket() == QueueStream::kCapacity);
  gate.open = true;
  one_more.join();
  stream->drain();
  assert_int_equal(record.seen.size(), QueueStream::kCapacity);
  assert_true(record.seen.back() == QueueStream::kCapacity);
}

void a_stream_runs_what_is_queued_before_it_ends(void**) {
  Record record;
  Gate gate;
  std::thread opener;
  {
    const auto stream = make_host_device(1)->create_stream(false);
    stream->submit(Gate::pass, &gate, 0, 0);
    for (uint64_t i = 0; i < 100; i++) stream->submit(Record::note, &record, 0, i);
    opener = std::thread([&] {
      while (!gate.entered) std::this_thread::yield();
      gate.open = true;
    });
  }
  opener.join();
  assert_int_equal(record.seen.size(), 100);
}

void inline_tasks_have_run_when_submit_returns(void**) {
  const auto stream = make_host_device(1)->create_stream(true);
  Record record;
  const std::thread::id here = std::this_thread::get_id();
  struct Where {
    std::thread::id id;
    static void note(void* context, uint64_t, uint64_t) {
      static_cast<Where*>(context)->id = std::this_thread::get_id();
    }
  } where;
  const uint64_t ticket = stream->submit(Where::note, &where, 0, 0);
  assert_true(stream->done(ticket));
  assert_false(stream->done(ticket + 1));
  assert_true(where.id == here);
}

void two_streams_run_beside_each_other(void**) {
  const auto device = make_host_device(1);
  const auto a = device->create_stream(false), b = device->create_stream(false);
  Gate gate;
  a->submit(Gate::pass, &gate, 0, 0);
  // b opens what a waits for: with one thread for both this would never end.
  b->submit([](void* context, uint64_t, uint64_t) { static_cast<Gate*>(context)->open = true; },
            &gate, 0, 0);
  a->drain();
  b->drain();
  assert_true(gate.entered);
}

void several_threads_may_submit_and_wait(void**) {
  const auto stream = make_host_device(1)->create_stream(false);
  uint64_t sum = 0; // only the worker touches it
  const auto add = [](void* context, uint64_t first, uint64_t) {
    *static_cast<uint64_t*>(context) += first;
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; t++) {
    threads.emplace_back([&] {
      for (uint64_t i = 1; i <= 500; i++) {
        const uint64_t ticket = stream->submit(add, &sum, i, 0);
        if (i % 50 == 0) stream->wait(ticket);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  stream->drain();
  assert_int_equal(sum, 4 * 500 * 501 / 2);
}

void a_cuda_device_is_refused_with_the_reason(void**) {
  try {
    zero::device::make_cuda_device(3);
    fail_msg("no refusal");
  } catch (const zero::Error& error) {
    assert_int_equal(error.status(), ZERO_ERR_UNSUPPORTED);
    assert_non_null(std::strstr(error.what(), "CUDA device 3"));
  }
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(tasks_run_in_the_order_of_submission),
      cmocka_unit_test(a_ticket_is_done_when_its_task_and_all_before_it_have_run),
      cmocka_unit_test(submit_blocks_while_the_queue_is_full_and_no_longer),
      cmocka_unit_test(a_stream_runs_what_is_queued_before_it_ends),
      cmocka_unit_test(inline_tasks_have_run_when_submit_returns),
      cmocka_unit_test(two_streams_run_beside_each_other),
      cmocka_unit_test(several_threads_may_submit_and_wait),
      cmocka_unit_test(a_cuda_device_is_refused_with_the_reason),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
