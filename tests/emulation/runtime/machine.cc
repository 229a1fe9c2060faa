// SPDX-License-Identifier: BSD-3-Clause
#include "machine.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "device_memory.h"

namespace cuemu {
namespace {

thread_local int t_device = 0;
constexpr auto kPeerWait = std::chrono::microseconds(200);
constexpr size_t kPendingKept = 256;

} // namespace

int current_device() {
  return t_device;
}
void set_current_device(int device) {
  t_device = device;
}

Machine& Machine::get() {
  static Machine* const machine = new Machine; // threads may outlive main
  return *machine;
}

Machine::Machine() {
  for (int d = 0; d < 16; ++d) legacy_[d].device = d;
  const char* text = getenv("CUEMU_STREAMS");
  if (text == nullptr) text = "late";
  const char* const seed = strchr(text, ':');
  random_.seed(seed != nullptr ? strtoull(seed + 1, nullptr, 10) : 1);
  if (strncmp(text, "eager", 5) == 0) policy_ = Policy::kEager;
  if (strncmp(text, "mixed", 5) == 0) policy_ = Policy::kMixed;
}

cudaError_t Machine::begin() {
  if (pid_ == 0) pid_ = getpid();
  return pid_ == getpid() ? cudaSuccess : cudaErrorInitializationError;
}

cudaStream_t Machine::resolve(cudaStream_t stream) {
  if (stream == nullptr || stream == cudaStreamLegacy) return &legacy_[t_device];
  for (const auto& own : streams_) {
    if (own.get() == stream) return own->alive ? stream : nullptr;
  }
  for (CUstream_st& own : legacy_) {
    if (&own == stream) return stream;
  }
  return nullptr;
}

cudaStream_t Machine::create(int device, bool blocking) {
  streams_.push_back(std::make_unique<CUstream_st>());
  streams_.back()->device = device;
  streams_.back()->blocking = blocking;
  return streams_.back().get();
}

cudaEvent_t Machine::create_event(int device) {
  events_.push_back(std::make_unique<CUevent_st>());
  events_.back()->device = device;
  return events_.back().get();
}

bool Machine::is_event(cudaEvent_t event) {
  return std::any_of(events_.begin(), events_.end(),
                     [event](const auto& own) { return own.get() == event && own->alive; });
}

Ticket Machine::enqueue(Lock* lock, cudaStream_t stream, const char* what, Body body,
                        std::vector<Ticket> after, const void* owner) {
  const auto operation = std::make_shared<Operation>();
  operation->body = std::move(body);
  operation->what = what;
  operation->owner = owner;
  operation->device = stream->device;
  const auto add = [&](const Ticket& ticket) {
    if (ticket != nullptr && !ticket->done) operation->after.push_back(ticket);
  };
  for (const Ticket& ticket : after) add(ticket);
  for (const Ticket& ticket : stream->joins) add(ticket);
  stream->joins.clear();
  add(stream->last);
  if (stream == &legacy_[stream->device]) {
    for (const auto& other : streams_) {
      if (other->device != stream->device || !other->blocking) continue;
      for (const Ticket& ticket : other->joins) add(ticket);
      add(other->last);
    }
  } else if (stream->blocking) {
    for (const Ticket& ticket : legacy_[stream->device].joins) add(ticket);
    add(legacy_[stream->device].last);
  }
  stream->last = operation;
  while (!pending_.empty() && (pending_.front()->done || pending_.size() > 65536)) {
    pending_.pop_front();
  }
  if (pending_.size() > kPendingKept && pending_.size() % kPendingKept == 0) {
    std::erase_if(pending_, [](const Ticket& ticket) { return ticket->done; });
  }
  pending_.push_back(operation);
  if (policy_ == Policy::kEager) advance(operation);
  if (policy_ == Policy::kMixed && random_() % 3 == 0) {
    advance(pending_[random_() % pending_.size()]);
  }
  (void)lock;
  changed_.notify_all();
  return operation;
}

Ticket Machine::first_of(const void* owner) const {
  const auto at = std::find_if(pending_.begin(), pending_.end(), [owner](const Ticket& ticket) {
    return ticket->owner == owner && !ticket->done;
  });
  return at == pending_.end() ? nullptr : *at;
}

bool Machine::run(const Ticket& operation) {
  open_device(operation->device);
  running_device = operation->device;
  const uint64_t before = operation->phase;
  const bool ended = operation->body == nullptr || operation->body(&operation->phase);
  running_device = -1;
  if (!ended) {
    operation->blocked_pass = pass_;
    return operation->phase != before;
  }
  operation->done = true;
  operation->body = nullptr;
  operation->after.clear();
  return true;
}

bool Machine::advance(const Ticket& target) {
  ++pass_;
  bool went_on = false;
  std::vector<Ticket> stack{target};
  while (!stack.empty()) {
    const Ticket top = stack.back();
    if (top->done || top->blocked_pass == pass_) {
      stack.pop_back();
      continue;
    }
    std::erase_if(top->after, [](const Ticket& ticket) { return ticket->done; });
    if (top->after.empty()) {
      went_on = run(top) || went_on;
      stack.pop_back();
      continue;
    }
    std::vector<const Ticket*> open;
    for (const Ticket& ticket : top->after) {
      if (ticket->blocked_pass != pass_) open.push_back(&ticket);
    }
    if (open.empty()) {
      top->blocked_pass = pass_;
      stack.pop_back();
      continue;
    }
    const Ticket next = *open[random_() % open.size()]; // top may be changed below
    stack.push_back(next);
  }
  close_devices();
  if (went_on) changed_.notify_all();
  return went_on;
}

void Machine::drive(Lock* lock, const Ticket& target) {
  if (target == nullptr) return;
  while (!target->done) {
    if (!advance(target) && !target->done) changed_.wait_for(*lock, kPeerWait);
  }
}

std::vector<Ticket> Machine::heads(int device) {
  std::vector<Ticket> all;
  const auto add = [&](const CUstream_st& stream) {
    for (const Ticket& ticket : stream.joins) all.push_back(ticket);
    if (stream.last != nullptr) all.push_back(stream.last);
  };
  add(legacy_[device]);
  for (const auto& stream : streams_) {
    if (stream->device == device) add(*stream);
  }
  std::shuffle(all.begin(), all.end(), random_);
  return all;
}

} // namespace cuemu
