// SPDX-License-Identifier: BSD-3-Clause
#include "engine/parameter_loans.h"

#include <cstring>

#include "base/dtype.h"
#include "engine/master_weights.h"

namespace zero::engine {

using Answer = plan::LoanAdmission::Answer;

ParameterLoans::ParameterLoans(Context& context, GradientReducer& reducer)
    : context_(context),
      reducer_(reducer),
      admission_(*context.plan),
      transfer_(context, comm::Channel::kGather),
      sharded_(context.plan->placement.parameters_sharded),
      loans_(context.plan->places.size(), 0),
      tickets_(context.plan->units.size(), 0),
      targets_(context.plan->units.size(), nullptr) {
  answers_.reserve(context.plan->places.size());
}

void ParameterLoans::check(const zero_param_id* params, uint64_t count, const char* call) const {
  const auto known = static_cast<int32_t>(loans_.size());
  for (uint64_t i = 0; i < count; ++i) {
    if (params[i] < 0 || params[i] >= known) {
      fail(ZERO_ERR_INVALID_ARGUMENT, "%s: parameter %d does not exist, expected 0 to %d", call,
           params[i], known - 1);
    }
  }
}

std::byte* ParameterLoans::unit_memory(int32_t unit) const {
  std::byte* base = context_.plan->units[static_cast<size_t>(unit)].persistent
                        ? context_.storage->persistent()
                        : context_.storage->loan_slots();
  return base + admission_.offset_bytes(unit);
}

void ParameterLoans::issue_gather(int32_t unit) {
  const plan::GatherUnit& layout = context_.plan->units[static_cast<size_t>(unit)];
  const auto u = static_cast<size_t>(unit);
  targets_[u] = unit_memory(unit);
  for (const int32_t bucket : layout.buckets) {
    context_.bytes_sent += context_.bucket(bucket).shard_elements *
                           context_.storage->element_bytes(bucket) *
                           static_cast<uint64_t>(context_.ranks() - 1);
  }
  tickets_[u] = context_.sequence->gather(unit, layout.bytes, &ParameterLoans::run_gather, this);
}

void ParameterLoans::run_gather(void* context, const comm::CollectiveStamp& stamp) {
  auto& self = *static_cast<ParameterLoans*>(context);
  const auto u = static_cast<size_t>(stamp.bucket);
  const plan::GatherUnit& unit = self.context_.plan->units[u];
  for (size_t k = 0; k < unit.buckets.size(); ++k) {
    const int32_t bucket = unit.buckets[k];
    const plan::Bucket& layout = self.context_.bucket(bucket);
    BucketTransfer::Ends ends;
    ends.shard = self.context_.storage->of_bucket(bucket).params +
                 layout.shard_offset * self.context_.storage->element_bytes(bucket);
    ends.sendable = self.context_.storage->may_be_sent(ZERO_MEMORY_PARAMS);
    ends.whole = self.targets_[u] + unit.slot_offset_bytes[k];
    if (self.context_.plan->placement.parameters_on_host) {
      // To its place in the loan first, from which it is sent.
      const uint64_t bytes = layout.shard_elements * self.context_.storage->element_bytes(bucket);
      std::byte* own = ends.whole + static_cast<uint64_t>(self.context_.rank()) * bytes;
      self.context_.device->copy(own, ends.shard, bytes);
      ends.shard = own;
      ends.sendable = self.context_.storage->may_be_sent(ZERO_MEMORY_GATHERED);
    }
    self.transfer_.gather(stamp, bucket, ends);
  }
}

void ParameterLoans::acquire(const zero_param_id* params, uint64_t count, zero_buffer* buffers) {
  check(params, count, "zero_params_acquire");
  if (sharded_) {
    reducer_.point();
    answers_.clear();
    for (uint64_t i = 0; i < count; ++i) {
      const int32_t unit = context_.plan->unit_of[static_cast<size_t>(params[i])];
      if (unit < 0) {
        answers_.push_back(Answer::kResident);
        continue;
      }
      const Answer answer = admission_.acquire(unit);
      if (answer == Answer::kRefuse) {
        const uint64_t needed = admission_.elements_needed(unit);
        const std::string name = context_.parameter(params[i]).name;
        while (i-- > 0) {
          const int32_t before = context_.plan->unit_of[static_cast<size_t>(params[i])];
          if (before >= 0) admission_.undo(before, answers_[i]);
        }
        fail(ZERO_ERR_OUT_OF_MEMORY,
             "zero_params_acquire: no room to gather param \"%s\"; on loan: %s; "
             "\"libzero.live_parameters\" is %llu, %llu would do",
             name.c_str(), open_text().c_str(),
             static_cast<unsigned long long>(context_.plan->live_elements),
             static_cast<unsigned long long>(needed));
      }
      answers_.push_back(answer);
    }
    for (uint64_t i = 0; i < count; ++i) {
      if (answers_[i] == Answer::kGather) {
        issue_gather(context_.plan->unit_of[static_cast<size_t>(params[i])]);
      }
    }
    for (uint64_t i = 0; i < count; ++i) {
      const int32_t unit = context_.plan->unit_of[static_cast<size_t>(params[i])];
      if (unit >= 0) context_.sequence->wait_gather(tickets_[static_cast<size_t>(unit)]);
    }
  }
  for (uint64_t i = 0; i < count; ++i) {
    ++loans_[static_cast<size_t>(params[i])];
    ++open_;
    const plan::Parameter& parameter = context_.parameter(context_.parameter(params[i]).root);
    zero_buffer& buffer = buffers[i];
    buffer.data = context_.storage->whole_value(params[i]);
    const plan::ParameterPlace& place = context_.plan->places[static_cast<size_t>(params[i])];
    if (sharded_ && place.bucket >= 0) {
      const int32_t unit = context_.plan->unit_of[static_cast<size_t>(params[i])];
      const plan::GatherUnit& layout = context_.plan->units[static_cast<size_t>(unit)];
      for (size_t k = 0; k < layout.buckets.size(); ++k) {
        if (layout.buckets[k] != place.bucket) continue;
        buffer.data = unit_memory(unit) + layout.slot_offset_bytes[k] +
                      place.offset * dtype_bytes(parameter.dtype);
      }
    }
    buffer.count = parameter.elements;
    buffer.bytes = parameter.elements * dtype_bytes(parameter.dtype);
    buffer.dtype = parameter.dtype;
    buffer.place = context_.device->place();
    buffer.device = -1;
    buffer.reserved = 0;
  }
}

// Every rank holds the same loan; each takes its own part of it.
void ParameterLoans::store_changes(zero_param_id param) {
  const plan::ParameterPlace& place = context_.plan->places[static_cast<size_t>(param)];
  if (place.bucket < 0) return;
  if (!sharded_) {
    masters_from_values(context_, place.bucket, place.offset,
                        place.offset + context_.parameter(param).elements);
    return;
  }
  const plan::Bucket& bucket = context_.bucket(place.bucket);
  const uint64_t size = context_.storage->element_bytes(place.bucket);
  const int32_t unit = context_.plan->unit_of[static_cast<size_t>(param)];
  const plan::GatherUnit& layout = context_.plan->units[static_cast<size_t>(unit)];
  const zero_span span = context_.plan->shard_span(param, context_.rank());
  if (span.count == 0) return;
  const std::byte* whole = nullptr;
  for (size_t k = 0; k < layout.buckets.size(); ++k) {
    if (layout.buckets[k] == place.bucket) whole = unit_memory(unit) + layout.slot_offset_bytes[k];
  }
  const uint64_t in_bucket = place.offset + span.offset;
  const uint64_t in_shard =
      in_bucket - static_cast<uint64_t>(context_.rank()) * bucket.shard_elements;
  std::memcpy(
      context_.storage->of_bucket(place.bucket).params + (bucket.shard_offset + in_shard) * size,
      whole + in_bucket * size, span.count * size);
  masters_from_values(context_, place.bucket, in_bucket, in_bucket + span.count);
}

void ParameterLoans::release(const zero_param_id* params, uint64_t count, bool keep_changes) {
  check(params, count, "zero_params_release");
  for (uint64_t i = 0; i < count; ++i) {
    if (loans_[static_cast<size_t>(params[i])] > 0) {
      --loans_[static_cast<size_t>(params[i])];
      continue;
    }
    const zero_param_id missing = params[i];
    while (i-- > 0) ++loans_[static_cast<size_t>(params[i])];
    fail(ZERO_ERR_INVALID_STATE, "zero_params_release: param \"%s\" is not on loan%s",
         context_.parameter(missing).name.c_str(),
         loans_[static_cast<size_t>(missing)] > 0 ? " as often as it is listed" : "");
  }
  open_ -= static_cast<int32_t>(count);
  for (uint64_t i = 0; i < count; ++i) {
    if (keep_changes) store_changes(params[i]);
    const int32_t unit = context_.plan->unit_of[static_cast<size_t>(params[i])];
    if (sharded_ && unit >= 0) admission_.release(unit);
  }
  if (sharded_) reducer_.point();
}

void ParameterLoans::prefetch(const zero_param_id* params, uint64_t count) {
  check(params, count, "zero_params_prefetch");
  if (!sharded_) return;
  reducer_.point();
  for (uint64_t i = 0; i < count; ++i) {
    const int32_t unit = context_.plan->unit_of[static_cast<size_t>(params[i])];
    if (unit >= 0 && admission_.prefetch(unit) == Answer::kGather) issue_gather(unit);
  }
}

void ParameterLoans::values_changed() {
  if (!sharded_) return;
  admission_.forget_all();
  for (size_t u = 0; u < context_.plan->units.size(); ++u) {
    const auto unit = static_cast<int32_t>(u);
    if (!context_.plan->units[u].persistent) continue;
    if (admission_.prefetch(unit) == Answer::kGather) issue_gather(unit);
  }
}

std::string ParameterLoans::open_text() const {
  std::string text;
  int32_t named = 0;
  for (size_t p = 0; p < loans_.size(); ++p) {
    if (loans_[p] == 0) continue;
    if (++named > 8) return text + ", ...";
    if (!text.empty()) text += ", ";
    text += "\"" + context_.parameter(static_cast<int32_t>(p)).name + "\"";
    if (loans_[p] > 1) text += format(" (%d loans)", loans_[p]);
  }
  return text.empty() ? "nothing" : text;
}

} // namespace zero::engine
