// zero.h, section 10: step.
// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>

#include "api/growing.h"
#include "api/handles.h"

using namespace zero::api; // the C functions below are outside of any namespace
using zero::engine::Runtime;
using zero::engine::StepOptions;
using zero::engine::StepReport;

namespace {

StepOptions step_options(const zero_step_options* options) {
  zero_step_options defaults;
  zero_step_options_init(&defaults, sizeof(defaults));
  const zero_step_options given =
      options == nullptr ? defaults : read_struct(options, "options", defaults);
  return StepOptions{given.lr, given.gradient_divisor};
}

void write_report(const StepReport& report, zero_step_info* info) {
  if (info == nullptr) return;
  zero_step_info out{};
  out.skipped = report.skipped ? 1 : 0;
  out.step = report.step;
  out.skipped_total = report.skipped_total;
  out.lr = report.lr;
  out.grad_norm = report.grad_norm;
  out.clip_scale = report.clip_scale;
  out.loss_scale = report.loss_scale;
  out.nonfinite_param = report.non_finite.found() ? report.non_finite.param : -1;
  out.nonfinite_rank = report.non_finite.found() ? report.non_finite.rank : -1;
  out.nonfinite_element = report.non_finite.found() ? report.non_finite.element : 0;
  out.reduce_ns = report.reduce_ns;
  out.update_ns = report.update_ns;
  out.gather_ns = report.gather_ns;
  out.bytes_sent = report.bytes_sent;
  write_struct(info, out);
}

} // namespace

void zero_step_options_init(zero_step_options* options, uint32_t struct_size) {
  zero_step_options defaults{};
  defaults.lr = defaults.gradient_divisor = NAN;
  init_struct(options, struct_size, defaults);
}

void zero_step_info_init(zero_step_info* info, uint32_t struct_size) {
  zero_step_info defaults{};
  defaults.clip_scale = defaults.loss_scale = 1;
  defaults.nonfinite_param = defaults.nonfinite_rank = -1;
  init_struct(info, struct_size, defaults);
}

zero_status zero_step(zero_runtime* runtime, const zero_step_options* options, void* stream,
                      zero_step_info* info) {
  return guard_runtime(runtime, [&](Runtime& engine) {
    require_host_stream(stream);
    if (info != nullptr) check_struct_size(info, "info");
    write_report(engine.stepper("zero_step").step(step_options(options)), info);
  });
}

zero_status zero_step_begin(zero_runtime* runtime, const zero_step_options* options, void* stream,
                            zero_step_info* info) {
  return guard_runtime(runtime, [&](Runtime& engine) {
    require_host_stream(stream);
    if (info != nullptr) check_struct_size(info, "info");
    write_report(engine.stepper("zero_step_begin").begin(step_options(options)), info);
  });
}

zero_status zero_step_end(zero_runtime* runtime, void* stream) {
  return guard_runtime(runtime, [&](Runtime& engine) {
    require_host_stream(stream);
    engine.stepper("zero_step_end").end();
  });
}

int64_t zero_step_count(const zero_runtime* runtime) {
  return runtime == nullptr ? 0 : runtime->runtime->steps();
}

double zero_loss_scale(const zero_runtime* runtime) {
  return runtime == nullptr ? 1 : runtime->runtime->loss_scale();
}

zero_status zero_loss_scale_buffer(const zero_runtime* runtime, zero_buffer* buffer) {
  return guard([&] {
    require(runtime, "runtime");
    require(buffer, "buffer");
    zero_buffer out{};
    out.data = runtime->runtime->loss_scale_fp32();
    out.bytes = sizeof(float);
    out.count = 1;
    out.dtype = ZERO_DTYPE_FP32;
    out.place = ZERO_PLACE_HOST;
    out.device = -1;
    *buffer = out;
  });
}

zero_status zero_param_grad_norm(const zero_runtime* runtime, zero_param_id param, double* norm) {
  return guard([&] {
    require(runtime, "runtime");
    require(norm, "norm");
    *norm = runtime->runtime->stepper("zero_param_grad_norm").param_grad_norm(param);
  });
}

zero_status zero_shard_buffer(zero_runtime* runtime, zero_param_id param, zero_part part,
                              int32_t index, zero_buffer* buffer) {
  return guard_runtime(runtime, [&](Runtime& engine) {
    require(buffer, "buffer");
    *buffer = engine.access("zero_shard_buffer").shard_buffer(param, part, index);
  });
}

zero_status zero_param_get(zero_runtime* runtime, zero_param_id param, zero_part part,
                           int32_t index, void* values, uint64_t bytes) {
  return guard_runtime(runtime, [&](Runtime& engine) {
    if (bytes > 0) require(values, "values");
    engine.access("zero_param_get").get(param, part, index, values, bytes);
  });
}

zero_status zero_param_set(zero_runtime* runtime, zero_param_id param, zero_part part,
                           int32_t index, const void* values, uint64_t bytes) {
  return guard_runtime(runtime, [&](Runtime& engine) {
    if (bytes > 0) require(values, "values");
    engine.access("zero_param_set").set(param, part, index, values, bytes);
  });
}
