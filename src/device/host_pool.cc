// Parts are taken one by one under a mutex, by the caller as by the helpers: a caller whose helpers
// are busy elsewhere runs all of them itself, so no call ever waits for another.
// SPDX-License-Identifier: BSD-3-Clause
#include "device/host_pool.h"

#include <algorithm>
#include <system_error>

#include "base/checked.h"
#include "base/error.h"

namespace zero::device {

HostPool::HostPool(int32_t threads) : width_(threads) {
  try {
    helpers_.reserve(static_cast<size_t>(threads - 1));
    for (int32_t i = 1; i < threads; i++) helpers_.emplace_back([this] { help(); });
  } catch (const std::system_error& error) {
    stop();
    fail(ZERO_ERR_OUT_OF_MEMORY, "kernel thread %d of %d could not be started: %s",
         static_cast<int>(helpers_.size()) + 2, static_cast<int>(threads), error.what());
  }
}

HostPool::~HostPool() {
  stop();
}

void HostPool::stop() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  offered_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void HostPool::run(uint64_t count, uint64_t grain, Part part, void* context) {
  if (count == 0) return;
  const uint64_t grains = divide_up(count, grain);
  const uint64_t width = static_cast<uint64_t>(width_);
  const uint64_t step = divide_up(grains, std::min(grains, width)) * grain;
  Job job{part, context, count, step, static_cast<int32_t>(divide_up(count, step))};
  if (job.parts == 1) {
    run_part(job, 0);
    return;
  }
  std::unique_lock lock(mutex_);
  job.next = jobs_;
  jobs_ = &job;
  lock.unlock();
  offered_.notify_all();
  lock.lock();
  while (job.taken < job.parts) {
    const int32_t index = take(&job);
    lock.unlock();
    run_part(job, index);
    lock.lock();
    job.finished++;
  }
  finished_.wait(lock, [&] { return job.finished == job.parts; });
}

void HostPool::help() {
  std::unique_lock lock(mutex_);
  for (;;) {
    offered_.wait(lock, [this] { return jobs_ != nullptr || ending_; });
    if (jobs_ == nullptr) return;
    Job* job = jobs_;
    const int32_t index = take(job);
    lock.unlock();
    run_part(*job, index);
    lock.lock();
    job->finished++;
    // The job is gone once its caller sees the last part finished: it is not touched after this.
    if (job->finished == job->parts) finished_.notify_all();
  }
}

int32_t HostPool::take(Job* job) {
  const int32_t index = job->taken++;
  if (job->taken == job->parts) {
    Job** link = &jobs_;
    while (*link != job) link = &(*link)->next;
    *link = job->next;
  }
  return index;
}

void HostPool::run_part(const Job& job, int32_t index) {
  const uint64_t begin = static_cast<uint64_t>(index) * job.step;
  // The last part ends with the range; compared by differences, so that nothing can wrap.
  const uint64_t end = job.count - begin > job.step ? begin + job.step : job.count;
  job.part(job.context, begin, end, index);
}

} // namespace zero::device
