// zero.h, sections 8 and 9: gradients and loans.
// SPDX-License-Identifier: BSD-3-Clause
#include "api/handles.h"

using namespace zero::api; // the C functions below are outside of any namespace
using zero::engine::Runtime;

zero_status zero_micro_begin(zero_runtime* runtime, int32_t is_last) {
  return guard_runtime(
      runtime, [&](Runtime& engine) { engine.reducer("zero_micro_begin").micro_begin(is_last); });
}

zero_status zero_grad_buffer(zero_runtime* runtime, zero_param_id param, void* stream,
                             zero_buffer* buffer, int32_t* add) {
  return guard_runtime(runtime, [&](Runtime& engine) {
    require(buffer, "buffer");
    require(add, "add");
    require_host_stream(stream);
    engine.reducer("zero_grad_buffer").buffer(param, buffer, add);
  });
}

zero_status zero_grad_ready(zero_runtime* runtime, const zero_param_id* params, uint64_t count,
                            void* stream) {
  return guard_runtime(runtime, [&](Runtime& engine) {
    if (count > 0) require(params, "params");
    require_host_stream(stream);
    engine.reducer("zero_grad_ready").ready(params, count);
  });
}

zero_status zero_grad_submit(zero_runtime* runtime, zero_param_id param,
                             const zero_buffer* gradient, void* stream) {
  return guard_runtime(runtime, [&](Runtime& engine) {
    require(gradient, "gradient");
    require_host_stream(stream);
    engine.reducer("zero_grad_submit").submit(param, *gradient);
  });
}

zero_status zero_grads_close(zero_runtime* runtime, const zero_param_id* params, uint64_t count,
                             void* stream) {
  return guard_runtime(runtime, [&](Runtime& engine) {
    if (count > 0) require(params, "params");
    require_host_stream(stream);
    engine.reducer("zero_grads_close").close(params, count);
  });
}

zero_status zero_micro_end(zero_runtime* runtime, void* stream) {
  return guard_runtime(runtime, [&](Runtime& engine) {
    require_host_stream(stream);
    engine.reducer("zero_micro_end").micro_end();
  });
}

zero_status zero_grads_clear(zero_runtime* runtime, void* stream) {
  return guard_runtime(runtime, [&](Runtime& engine) {
    require_host_stream(stream);
    engine.reducer("zero_grads_clear").clear();
  });
}

zero_status zero_params_acquire(zero_runtime* runtime, const zero_param_id* params, uint64_t count,
                                void* stream, zero_buffer* buffers) {
  return guard_runtime(runtime, [&](Runtime& engine) {
    if (count > 0) require(params, "params");
    if (count > 0) require(buffers, "buffers");
    require_host_stream(stream);
    engine.loans("zero_params_acquire").acquire(params, count, buffers);
  });
}

zero_status zero_params_release(zero_runtime* runtime, const zero_param_id* params, uint64_t count,
                                int32_t keep_changes, void* stream) {
  return guard_runtime(runtime, [&](Runtime& engine) {
    if (count > 0) require(params, "params");
    require_host_stream(stream);
    engine.loans("zero_params_release").release(params, count, keep_changes != 0);
  });
}

zero_status zero_params_prefetch(zero_runtime* runtime, const zero_param_id* params,
                                 uint64_t count) {
  return guard_runtime(runtime, [&](Runtime& engine) {
    if (count > 0) require(params, "params");
    engine.loans("zero_params_prefetch").prefetch(params, count);
  });
}

zero_status zero_params_broadcast(zero_runtime* runtime, int32_t root) {
  return guard_runtime(
      runtime, [&](Runtime& engine) { engine.access("zero_params_broadcast").broadcast(root); });
}
