// A CUDA device, behind the plug-in's table.
// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "device/cuda_plugin.h"
#include "device/device.h"

namespace zero::device {
namespace {

constexpr int32_t kOutOfMemory = 2; // cudaErrorMemoryAllocation
constexpr int32_t kOldestDriver = 12000; // as CUDA counts versions

// An event of the device's, without anything recorded.
class CudaEvent final : public Event {
 public:
  CudaEvent(const CudaPlugin& cuda, int32_t device) : cuda_(cuda), device_(device) {
    const CurrentDevice current(device_);
    const int32_t error = cuda_.event_create(&event_);
    if (error != 0) fail_cuda(error, "a CUDA event could not be made");
  }
  ~CudaEvent() override { cuda_.event_destroy(event_); }

  void record() override { record_on(current_stream()); }
  void wait() override { wait_on(current_stream()); }
  void host_wait() override {
    if (!recorded_) return;
    const int32_t error = cuda_.event_synchronize(event_);
    if (error != 0) fail_cuda(error, "a CUDA event was waited for");
  }
  bool done() const override {
    int32_t done = 1;
    const int32_t error = recorded_ ? cuda_.event_done(event_, &done) : 0;
    if (error != 0) fail_cuda(error, "a CUDA event was asked for");
    return done != 0;
  }

  void record_on(void* stream) {
    const CurrentDevice current(device_);
    const int32_t error = cuda_.event_record(event_, stream);
    if (error != 0) fail_cuda(error, "a CUDA event could not be recorded");
    recorded_ = true;
  }
  void wait_on(void* stream) {
    if (!recorded_) return;
    const CurrentDevice current(device_);
    const int32_t error = cuda_.stream_wait(stream, event_);
    if (error != 0) fail_cuda(error, "a CUDA stream could not be made to wait");
  }

 private:
  const CudaPlugin& cuda_;
  const int32_t device_;
  void* event_ = nullptr;
  bool recorded_ = false;
};

// Tasks run on the current stream itself: whoever waits is behind them already, or takes care.
class CudaInlineStream final : public Stream {
 public:
  CudaInlineStream(const CudaPlugin& cuda, int32_t device) : last_done_(cuda, device) {}

  uint64_t submit(Task task, void* context, uint64_t first, uint64_t second) override {
    task(context, first, second);
    last_done_.record();
    last_stream_ = current_stream();
    return ++last_;
  }
  void wait(uint64_t ticket) override {
    // A stream other than the one that carried it must wait; tickets before the last are behind it.
    if (ticket != 0 && current_stream() != last_stream_) last_done_.wait();
  }
  bool done(uint64_t ticket) const override { return ticket < last_ ? true : last_done_.done(); }
  uint64_t last_ticket() const override { return last_; }

 private:
  CudaEvent last_done_;
  void* last_stream_ = nullptr;
  uint64_t last_ = 0;
};

// A stream of its own.  The events of the last tickets are kept; an older ticket is waited for by
// the oldest event there is, which comes after it.
class CudaStream final : public Stream {
 public:
  CudaStream(const CudaPlugin& cuda, int32_t device)
      : cuda_(cuda), device_(device), fork_(cuda, device) {
    const CurrentDevice current(device_);
    const int32_t error = cuda_.stream_create(&stream_, /*urgent=*/1);
    if (error != 0) fail_cuda(error, "a CUDA stream could not be made");
    for (uint64_t i = 0; i < kEvents; ++i) {
      events_.push_back(std::make_unique<CudaEvent>(cuda, device));
    }
  }
  ~CudaStream() override {
    if (stream_ == nullptr) return;
    cuda_.stream_synchronize(stream_);
    cuda_.stream_destroy(stream_);
  }

  uint64_t submit(Task task, void* context, uint64_t first, uint64_t second) override {
    fork_.record();
    fork_.wait_on(stream_);
    {
      const StreamScope scope(stream_);
      task(context, first, second);
    }
    events_[(last_ + 1) % kEvents]->record_on(stream_);
    return ++last_;
  }
  void wait(uint64_t ticket) override {
    void* const stream = current_stream();
    Waiter& waiter = waiter_of(stream);
    if (ticket == 0 || ticket <= waiter.ticket) return;
    const uint64_t kept = std::max(ticket, last_ < kEvents ? 1 : last_ - kEvents + 1);
    events_[kept % kEvents]->wait_on(stream);
    waiter.ticket = kept;
  }
  bool done(uint64_t ticket) const override {
    if (ticket == 0) return true;
    const uint64_t kept = std::max(ticket, last_ < kEvents ? 1 : last_ - kEvents + 1);
    return events_[kept % kEvents]->done();
  }
  uint64_t last_ticket() const override { return last_; }

 private:
  static constexpr uint64_t kEvents = 256;
  struct Waiter {
    void* stream = nullptr;
    uint64_t ticket = 0; // the last that it has waited for
  };
  // Of the streams seen last; a stream that is not among them has waited for nothing.
  Waiter& waiter_of(void* stream) {
    for (Waiter& waiter : waiters_) {
      if (waiter.ticket != 0 && waiter.stream == stream) return waiter;
    }
    Waiter& taken = waiters_[next_waiter_++ % kWaiters];
    taken = Waiter{stream, 0};
    return taken;
  }

  static constexpr size_t kWaiters = 8;
  const CudaPlugin& cuda_;
  const int32_t device_;
  void* stream_ = nullptr;
  CudaEvent fork_;
  std::vector<std::unique_ptr<CudaEvent>> events_;
  Waiter waiters_[kWaiters];
  size_t next_waiter_ = 0;
  uint64_t last_ = 0;
};

class CudaDevice final : public Device {
 public:
  CudaDevice(const CudaPlugin& cuda, int32_t ordinal) : cuda_(cuda), ordinal_(ordinal) {}

  zero_place place() const override { return ZERO_PLACE_DEVICE; }
  int32_t ordinal() const override { return ordinal_; }
  const kernels::CudaKernelTable* cuda_kernels() const override { return cuda_.kernels; }
  void check_launch(int32_t error, const char* what) const override {
    if (error != 0) fail_cuda(error, what);
  }

  void* allocate(uint64_t bytes) override {
    const CurrentDevice current(ordinal_);
    void* memory = nullptr;
    const uint64_t whole = bytes == 0 ? kPage : bytes;
    int32_t error = cuda_.allocate(&memory, whole);
    if (error != 0) fail_allocation(error, whole);
    error = cuda_.fill(memory, 0, whole, current_stream());
    if (error == 0) error = cuda_.stream_synchronize(current_stream());
    if (error != 0) {
      cuda_.release(memory);
      fail_cuda(error, "device memory could not be cleared");
    }
    return memory;
  }
  void release(void* memory, uint64_t) override {
    if (memory != nullptr) cuda_.release(memory);
  }
  void* allocate_pinned(uint64_t bytes) override {
    const CurrentDevice current(ordinal_);
    void* memory = nullptr;
    const uint64_t whole = bytes == 0 ? kPage : bytes;
    const int32_t error = cuda_.allocate_pinned(&memory, whole);
    if (error != 0) {
      throw Error(ZERO_ERR_OUT_OF_MEMORY,
                  format("%llu bytes of pinned host memory could not be allocated: %s",
                         static_cast<unsigned long long>(whole), cuda_.error_name(error)),
                  -1, error, "cuda");
    }
    std::memset(memory, 0, whole);
    return memory;
  }
  void release_pinned(void* memory, uint64_t) override {
    if (memory != nullptr) cuda_.release_pinned(memory);
  }

  void copy(void* dst, const void* src, uint64_t bytes) override {
    if (bytes == 0) return;
    const CurrentDevice current(ordinal_);
    const int32_t error = cuda_.copy(dst, src, bytes, current_stream());
    if (error != 0) fail_cuda(error, "a copy could not be enqueued");
  }
  void fill(void* dst, uint8_t value, uint64_t bytes) override {
    if (bytes == 0) return;
    const CurrentDevice current(ordinal_);
    const int32_t error = cuda_.fill(dst, value, bytes, current_stream());
    if (error != 0) fail_cuda(error, "a fill could not be enqueued");
  }
  void synchronize() override {
    const CurrentDevice current(ordinal_);
    const int32_t error = cuda_.stream_synchronize(current_stream());
    if (error != 0) fail_cuda(error, "work on a CUDA stream failed");
  }
  std::unique_ptr<Event> create_event() override {
    return std::make_unique<CudaEvent>(cuda_, ordinal_);
  }
  bool capturing() const override {
    const CurrentDevice current(ordinal_);
    int32_t capturing = 0;
    const int32_t error = cuda_.stream_capturing(current_stream(), &capturing);
    if (error != 0) fail_cuda(error, "a CUDA stream was asked whether it is captured");
    return capturing != 0;
  }
  zero_place place_of(const void* memory, int32_t* device) const override {
    int32_t place = ZERO_PLACE_HOST;
    const int32_t error = cuda_.place_of(memory, &place, device);
    if (error != 0) fail_cuda(error, "CUDA was asked where memory lies");
    return place;
  }

  std::unique_ptr<Stream> create_stream(bool inline_stream) override {
    if (inline_stream) return std::make_unique<CudaInlineStream>(cuda_, ordinal_);
    return std::make_unique<CudaStream>(cuda_, ordinal_);
  }
  int32_t parallel_width() const override { return 1; }
  void parallel(uint64_t count, uint64_t, Part part, void* context) override {
    if (count != 0) part(context, 0, count, 0);
  }

 private:
  static constexpr uint64_t kPage = 4096;

  [[noreturn]] void fail_allocation(int32_t error, uint64_t bytes) const {
    if (error != kOutOfMemory) fail_cuda(error, "device memory could not be allocated");
    uint64_t left = 0, total = 0;
    cuda_.memory_left(&left, &total);
    throw Error(
        ZERO_ERR_OUT_OF_DEVICE_MEMORY,
        format("%llu bytes of CUDA device %d could not be allocated: %llu of %llu are free",
               static_cast<unsigned long long>(bytes), ordinal_,
               static_cast<unsigned long long>(left), static_cast<unsigned long long>(total)),
        -1, error, "cuda");
  }

  const CudaPlugin& cuda_;
  const int32_t ordinal_;
};

int32_t ordinal_of_environment() {
  const char* const text = std::getenv("LOCAL_RANK");
  if (text == nullptr || *text == '\0') return 0;
  char* end = nullptr;
  const long rank = std::strtol(text, &end, 10);
  if (*end != '\0' || rank < 0 || rank > INT32_MAX) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "LOCAL_RANK is \"%s\", expected a number >= 0", text);
  }
  return static_cast<int32_t>(rank);
}

// Throws where there is no such device, with the reason.
void check_device(const CudaPlugin& cuda, int32_t ordinal) {
  int32_t driver = 0, runtime = 0, count = 0;
  cuda.versions(&driver, &runtime);
  if (driver == 0) {
    fail(ZERO_ERR_UNSUPPORTED,
         "CUDA device %d was asked for, but this machine has no NVIDIA driver", ordinal);
  }
  if (driver < kOldestDriver) {
    fail(ZERO_ERR_UNSUPPORTED,
         "CUDA device %d was asked for, but the NVIDIA driver is for CUDA %d.%d, expected %d.%d or "
         "newer",
         ordinal, driver / 1000, driver % 1000 / 10, kOldestDriver / 1000,
         kOldestDriver % 1000 / 10);
  }
  const int32_t error = cuda.device_count(&count);
  if (error != 0 || count == 0) {
    throw Error(ZERO_ERR_UNSUPPORTED,
                format("CUDA device %d was asked for, but CUDA finds no device: %s (%s)", ordinal,
                       cuda.error_name(error), cuda.error_text(error)),
                -1, error, "cuda");
  }
  if (ordinal >= count) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "CUDA device %d does not exist, expected 0 to %d", ordinal,
         count - 1);
  }
}

} // namespace

std::unique_ptr<Device> make_cuda_device(int32_t ordinal) {
  if (ordinal < 0) ordinal = ordinal_of_environment();
  const CudaPlugin& cuda = cuda_plugin(ordinal);
  check_device(cuda, ordinal);
  return std::make_unique<CudaDevice>(cuda, ordinal);
}

} // namespace zero::device
