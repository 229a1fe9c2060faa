// SPDX-License-Identifier: BSD-3-Clause
#include "engine/gradient_reducer.h"

#include <cstring>

#include "base/dtype.h"

namespace zero::engine {

GradientReducer::GradientReducer(Context& context)
    : context_(context),
      reduction_(context),
      admission_(*context.plan),
      window_(context.settings.accumulation_steps),
      pooled_(context.plan->placement.gradients_sharded),
      every_micro_batch_(pooled_ || context.plan->settings.reproducible_stage) {
  const plan::Plan& plan = *context.plan;
  const auto buckets = static_cast<size_t>(plan.trained_buckets);
  const size_t params = plan.places.size();
  names_in_bucket_.assign(buckets, 0);
  for (size_t p = 0; p < params; ++p) {
    const plan::Parameter& root =
        context.parameter(context.parameter(static_cast<int32_t>(p)).root);
    const int32_t bucket = plan.places[p].bucket;
    if (root.role == ZERO_PARAM_TRAINED && bucket >= 0) {
      ++names_in_bucket_[static_cast<size_t>(bucket)];
    }
  }
  names_.assign(params, Name::kIdle);
  content_.assign(params, 0);
  touched_.assign(params, 0);
  listed_.assign(params, 0);
  came_.assign(params, 0);
  contents_in_bucket_.assign(buckets, 0);
  jobs_.resize(buckets);
  tickets_.assign(buckets, 0);
  accumulated_.assign(buckets, 0);
  issued_.assign(buckets, 0);
}

std::string GradientReducer::quoted(zero_param_id param) const {
  return "param \"" + context_.parameter(param).name + "\"";
}

void GradientReducer::micro_begin(int32_t is_last) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (finished_) fail(ZERO_ERR_INVALID_STATE, "expected zero_step_end before another micro-batch");
  window_.begin(is_last);
}

void GradientReducer::check_may_come(zero_param_id param, const char* call) const {
  const auto count = static_cast<int32_t>(names_.size());
  if (param < 0 || param >= count) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "%s: parameter %d does not exist, expected 0 to %d", call,
         param, count - 1);
  }
  const plan::Parameter& parameter = context_.parameter(param);
  const plan::Parameter& root = context_.parameter(parameter.root);
  if (root.role != ZERO_PARAM_TRAINED) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "%s: %s is %s, expected a trained parameter", call,
         quoted(param).c_str(), root.role == ZERO_PARAM_FROZEN ? "frozen" : "a buffer");
  }
  if (!begun_) return;
  const Name name = names_[static_cast<size_t>(param)];
  if (name == Name::kReady || name == Name::kClosed) {
    fail(ZERO_ERR_INVALID_STATE, "%s: the gradient of %s is already %s in micro-batch %lld", call,
         quoted(param).c_str(), name == Name::kReady ? "complete" : "closed",
         static_cast<long long>(window_.ended() + 1));
  }
}

// Everything issued in the micro-batch before must be reduced: its slots and buffers are used anew.
void GradientReducer::open_micro_batch() {
  if (finished_) fail(ZERO_ERR_INVALID_STATE, "expected zero_step_end before another gradient");
  window_.begin_unless_open();
  if (begun_) return;
  context_.sequence->drain();
  collect_reduced();
  admission_.begin(names_in_bucket_);
  std::fill(names_.begin(), names_.end(), Name::kIdle);
  std::fill(touched_.begin(), touched_.end(), uint8_t{0});
  if (every_micro_batch_) {
    std::fill(content_.begin(), content_.end(), uint8_t{0});
    std::fill(contents_in_bucket_.begin(), contents_in_bucket_.end(), 0);
  }
  begun_ = true;
}

void GradientReducer::collect_reduced() {
  for (size_t b = 0; b < tickets_.size(); ++b) {
    if (tickets_[b] == 0) continue;
    admission_.reduced(static_cast<int32_t>(b));
    tickets_[b] = 0;
  }
}

void GradientReducer::open_bucket(int32_t bucket) {
  for (;;) {
    switch (admission_.open(bucket)) {
      case plan::Admission::kAdmit:
        return;
      case plan::Admission::kWait: {
        const int32_t other = admission_.wait_for();
        context_.sequence->wait_reduce(tickets_[static_cast<size_t>(other)]);
        admission_.reduced(other);
        tickets_[static_cast<size_t>(other)] = 0;
        break;
      }
      case plan::Admission::kRefuse: {
        const int32_t other = admission_.blocking_bucket();
        fail(
            ZERO_ERR_NO_OPEN_BUCKET,
            "bucket %d (with %s) cannot be opened: bucket %d (with %s) and others are open and not "
            "complete; \"libzero.open_buckets\" is %d, at least %d would be needed so far",
            bucket, quoted(context_.bucket(bucket).members.front().param).c_str(), other,
            quoted(context_.bucket(other).members.front().param).c_str(),
            context_.plan->settings.open_buckets, admission_.slots_needed());
      }
    }
  }
}

std::byte* GradientReducer::address(zero_param_id root) const {
  const plan::ParameterPlace& place = context_.plan->places[static_cast<size_t>(root)];
  std::byte* whole = pooled_
                         ? context_.storage->pool_slot(place.bucket, admission_.slot(place.bucket))
                         : context_.storage->whole_grads(place.bucket);
  return whole + place.offset * context_.storage->element_bytes(place.bucket);
}

void GradientReducer::buffer(zero_param_id param, zero_buffer* buffer, int32_t* add) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!window_.open()) {
    check_may_come(param, "zero_grad_buffer");
    open_micro_batch();
  } else {
    open_micro_batch();
    check_may_come(param, "zero_grad_buffer");
  }
  const zero_param_id root = root_of(param);
  const int32_t bucket = bucket_of(param);
  if (names_[static_cast<size_t>(param)] == Name::kAsked) {
    fail(ZERO_ERR_INVALID_STATE,
         "zero_grad_buffer: the buffer of %s was already handed out in micro-batch %lld, expected "
         "zero_grad_ready",
         quoted(param).c_str(), static_cast<long long>(window_.ended() + 1));
  }
  open_bucket(bucket);
  const plan::Parameter& parameter = context_.parameter(root);
  buffer->data = address(root);
  buffer->count = parameter.elements;
  buffer->bytes = parameter.elements * dtype_bytes(parameter.dtype);
  buffer->dtype = parameter.dtype;
  buffer->place = context_.device->place();
  buffer->device = -1;
  buffer->reserved = 0;
  *add = content_[static_cast<size_t>(root)] != 0 ? 1 : 0;
  names_[static_cast<size_t>(param)] = Name::kAsked;
  touched_[static_cast<size_t>(root)] = 1;
  if (content_[static_cast<size_t>(root)] == 0) {
    content_[static_cast<size_t>(root)] = 1;
    ++contents_in_bucket_[static_cast<size_t>(bucket)];
  }
}

void GradientReducer::mark_done(zero_param_id param, Name how) {
  names_[static_cast<size_t>(param)] = how;
  if (how == Name::kReady) came_[static_cast<size_t>(root_of(param))] = 1;
  if (admission_.name_done(bucket_of(param))) issue_complete(/*at_point=*/false);
}

void GradientReducer::ready(const zero_param_id* params, uint64_t count) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++calls_;
  for (uint64_t i = 0; i < count; ++i) {
    check_may_come(params[i], "zero_grad_ready");
    if (listed_[static_cast<size_t>(params[i])] == calls_) {
      fail(ZERO_ERR_INVALID_ARGUMENT, "zero_grad_ready: %s is listed twice",
           quoted(params[i]).c_str());
    }
    listed_[static_cast<size_t>(params[i])] = calls_;
    const zero_param_id root = root_of(params[i]);
    // Another name of the same storage may have been written to for this one.
    if (!begun_ || touched_[static_cast<size_t>(root)] == 0) {
      fail(
          ZERO_ERR_INVALID_STATE,
          "zero_grad_ready: the gradient of %s has nowhere been written; expected zero_grad_buffer "
          "before (or zero_grad_submit, or zero_grads_close where none comes)",
          quoted(params[i]).c_str());
    }
  }
  for (uint64_t i = 0; i < count; ++i) mark_done(params[i], Name::kReady);
}

void GradientReducer::submit(zero_param_id param, const zero_buffer& gradient) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (window_.open()) open_micro_batch();
  check_may_come(param, "zero_grad_submit");
  const plan::Parameter& parameter = context_.parameter(root_of(param));
  if (gradient.dtype != parameter.dtype) {
    fail(ZERO_ERR_INVALID_ARGUMENT,
         "zero_grad_submit: the gradient of %s has dtype %s, expected %s", quoted(param).c_str(),
         dtype_name(gradient.dtype), dtype_name(parameter.dtype));
  }
  if (gradient.count != parameter.elements) {
    fail(ZERO_ERR_INVALID_ARGUMENT,
         "zero_grad_submit: the gradient of %s has %llu elements, expected %llu",
         quoted(param).c_str(), static_cast<unsigned long long>(gradient.count),
         static_cast<unsigned long long>(parameter.elements));
  }
  const uint64_t bytes = parameter.elements * dtype_bytes(parameter.dtype);
  if (gradient.bytes != bytes) {
    fail(ZERO_ERR_INVALID_ARGUMENT,
         "zero_grad_submit: the gradient of %s has %llu bytes, expected %llu",
         quoted(param).c_str(), static_cast<unsigned long long>(gradient.bytes),
         static_cast<unsigned long long>(bytes));
  }
  if (gradient.data == nullptr && bytes != 0) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "zero_grad_submit: the gradient of %s has no data",
         quoted(param).c_str());
  }
  if (gradient.place != ZERO_PLACE_HOST && gradient.place != ZERO_PLACE_PINNED) {
    fail(ZERO_ERR_INVALID_ARGUMENT,
         "zero_grad_submit: the gradient of %s lies in place %d, expected host memory",
         quoted(param).c_str(), gradient.place);
  }
  open_micro_batch();
  const zero_param_id root = root_of(param);
  const int32_t bucket = bucket_of(param);
  if (names_[static_cast<size_t>(param)] == Name::kAsked) {
    fail(ZERO_ERR_INVALID_STATE,
         "zero_grad_submit: the buffer of %s was handed out, expected zero_grad_ready",
         quoted(param).c_str());
  }
  open_bucket(bucket);
  std::byte* target = address(root);
  if (bytes != 0) {
    if (content_[static_cast<size_t>(root)] != 0) {
      context_.kernels->add(gradient.data, gradient.dtype, target, parameter.dtype,
                            parameter.elements);
    } else {
      std::memcpy(target, gradient.data, bytes);
    }
  }
  touched_[static_cast<size_t>(root)] = 1;
  if (content_[static_cast<size_t>(root)] == 0) {
    content_[static_cast<size_t>(root)] = 1;
    ++contents_in_bucket_[static_cast<size_t>(bucket)];
  }
  mark_done(param, Name::kReady);
}

void GradientReducer::close(const zero_param_id* params, uint64_t count) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (uint64_t i = 0; i < count; ++i) {
    const auto known = static_cast<int32_t>(names_.size());
    if (params[i] < 0 || params[i] >= known) {
      fail(ZERO_ERR_INVALID_ARGUMENT,
           "zero_grads_close: parameter %d does not exist, expected 0 to %d", params[i], known - 1);
    }
    if (context_.parameter(root_of(params[i])).role != ZERO_PARAM_TRAINED) {
      check_may_come(params[i], "zero_grads_close");
    }
    if (begun_ && names_[static_cast<size_t>(params[i])] == Name::kAsked) {
      fail(ZERO_ERR_INVALID_STATE,
           "zero_grads_close: the buffer of %s was handed out, expected zero_grad_ready",
           quoted(params[i]).c_str());
    }
  }
  open_micro_batch();
  for (uint64_t i = 0; i < count; ++i) {
    const Name name = names_[static_cast<size_t>(params[i])];
    // What has come, or is closed already, needs no closing.
    if (name == Name::kReady || name == Name::kClosed) continue;
    mark_done(params[i], Name::kClosed);
  }
}

void GradientReducer::point() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (begun_) issue_complete(/*at_point=*/true);
}

} // namespace zero::engine
