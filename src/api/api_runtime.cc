// zero.h, section 7: runtime.
// SPDX-License-Identifier: BSD-3-Clause
#include "api/api_values.h"
#include "api/growing.h"
#include "api/handles.h"
#include "base/dtype.h"

using namespace zero::api; // the C functions below are outside of any namespace
using zero::fail;

void zero_allocator_init(zero_allocator* allocator, uint32_t struct_size) {
  init_struct(allocator, struct_size, zero_allocator{});
}

void zero_init_options_init(zero_init_options* options, uint32_t struct_size) {
  zero_init_options defaults{};
  defaults.device = -1;
  init_struct(options, struct_size, defaults);
}

zero_status zero_init(const zero_config* config, const zero_init_options* options,
                      zero_runtime** runtime) {
  return guard([&] {
    require(config, "config");
    require(runtime, "runtime");
    zero_init_options defaults;
    zero_init_options_init(&defaults, sizeof(defaults));
    const zero_init_options given =
        options == nullptr ? defaults : read_struct(options, "options", defaults);
    zero_allocator allocator{};
    if (given.allocator != nullptr) {
      allocator = read_struct(given.allocator, "options->allocator", zero_allocator{});
      require(reinterpret_cast<const void*>(allocator.allocate), "allocator->allocate");
      require(reinterpret_cast<const void*>(allocator.release), "allocator->release");
    }
    const zero::config::Settings settings = config->config.settings();
    if (given.device >= 0 && settings.device_is_host) {
      fail(ZERO_ERR_UNSUPPORTED,
           "options->device is %d, expected -1: a CUDA device is not in this build", given.device);
    }
    auto made = std::make_unique<zero_runtime>();
    if (given.comm != nullptr) {
      if (given.comm->serves_runtime->exchange(true)) {
        made->comm.serves_runtime.reset();
        fail(ZERO_ERR_INVALID_STATE,
             "options->comm already serves a runtime, expected one communicator for each");
      }
      made->comm.comm = given.comm->comm;
      made->comm.serves_runtime = given.comm->serves_runtime;
    } else {
      made->comm.comm = zero::comm::make_from_environment(settings.comm, settings.group,
                                                          settings.comm_timeout_ns);
      made->comm.serves_runtime->store(true);
    }
    made->config.config = config->config;
    made->config.config.set_world_size(made->comm.comm->size());
    made->runtime = std::make_unique<zero::engine::Runtime>(
        made->config.config, made->comm.comm, given.allocator == nullptr ? nullptr : &allocator);
    *runtime = made.release();
  });
}

zero_status zero_shard_params(zero_runtime* runtime, const zero_model* model) {
  return guard_runtime(runtime, [&](zero::engine::Runtime& engine) {
    require(model, "model");
    engine.shard_params(model->table);
    runtime->plan.plan = engine.shared_plan();
  });
}

zero_status zero_runtime_close(zero_runtime* runtime) {
  return guard_runtime(runtime, [&](zero::engine::Runtime& engine) { engine.close(); });
}

void zero_runtime_destroy(zero_runtime* runtime) {
  delete runtime;
}

zero_status zero_runtime_status(const zero_runtime* runtime) {
  const zero_status given = guard([&] { require(runtime, "runtime"); });
  return given == ZERO_OK ? runtime->runtime->status() : given;
}

zero_status zero_runtime_text(const zero_runtime* runtime, char* buffer, uint64_t capacity,
                              uint64_t* length) {
  return guard([&] {
    require(runtime, "runtime");
    write_text(runtime->runtime->text(), buffer, capacity, length);
  });
}

zero_comm* zero_runtime_comm(const zero_runtime* runtime) {
  // Borrowed and usable: the communicator itself is not part of the runtime's value.
  return runtime == nullptr ? nullptr : const_cast<zero_comm*>(&runtime->comm);
}

const zero_config* zero_runtime_config(const zero_runtime* runtime) {
  return runtime == nullptr ? nullptr : &runtime->config;
}

const zero_plan* zero_runtime_plan(const zero_runtime* runtime) {
  return runtime == nullptr || runtime->plan.plan == nullptr ? nullptr : &runtime->plan;
}

int32_t zero_param_count(const zero_runtime* runtime) {
  if (runtime == nullptr || runtime->plan.plan == nullptr) return 0;
  return static_cast<int32_t>(runtime->plan.plan->places.size());
}

zero_status zero_param_find(const zero_runtime* runtime, const char* name, zero_param_id* param) {
  return guard([&] {
    require(runtime, "runtime");
    require(name, "name");
    require(param, "param");
    const zero_param_id found = runtime->runtime->plan("zero_param_find").model.find(name);
    if (found < 0) fail(ZERO_ERR_NOT_FOUND, "the model has no parameter \"%s\"", name);
    *param = found;
  });
}

void zero_param_info_init(zero_param_info* info, uint32_t struct_size) {
  zero_param_info defaults{};
  defaults.tied_to = -1;
  defaults.name = "";
  init_struct(info, struct_size, defaults);
}

zero_status zero_param_describe(const zero_runtime* runtime, zero_param_id param,
                                zero_param_info* info) {
  return guard([&] {
    require(runtime, "runtime");
    check_struct_size(info, "info");
    const zero::plan::Plan& plan = runtime->runtime->plan("zero_param_describe");
    check_param(plan.places.size(), param);
    const zero::plan::Parameter& parameter = plan.model.parameters()[static_cast<size_t>(param)];
    write_struct(info, param_info(parameter));
  });
}

zero_status zero_param_buffer(const zero_runtime* runtime, zero_param_id param,
                              zero_buffer* buffer) {
  return guard([&] {
    require(runtime, "runtime");
    require(buffer, "buffer");
    const zero::plan::Plan& plan = runtime->runtime->plan("zero_param_buffer");
    check_param(plan.places.size(), param);
    const zero::plan::Parameter& parameter = plan.model.parameters()[static_cast<size_t>(param)];
    std::byte* value = runtime->runtime->storage("zero_param_buffer").whole_value(param);
    const bool sharded = plan.placement.parameters_sharded && parameter.role != ZERO_PARAM_BUFFER;
    if (sharded) {
      fail(
          ZERO_ERR_INVALID_STATE,
          "param \"%s\" is sharded at stage 3 and whole only on loan, expected zero_params_acquire",
          parameter.name.c_str());
    }
    zero_buffer out{};
    out.data = value;
    out.count = parameter.elements;
    out.bytes = parameter.elements * zero::dtype_bytes(parameter.dtype);
    out.dtype = parameter.dtype;
    out.place = ZERO_PLACE_HOST;
    out.device = -1;
    *buffer = out;
  });
}

zero_status zero_param_shard(const zero_runtime* runtime, zero_param_id param, int32_t rank,
                             zero_span* span) {
  return guard([&] {
    require(runtime, "runtime");
    require(span, "span");
    const zero::plan::Plan& plan = runtime->runtime->plan("zero_param_shard");
    check_param(plan.places.size(), param);
    check_rank(rank, plan.settings.group.ranks);
    const zero::plan::Parameter& parameter = plan.model.parameters()[static_cast<size_t>(param)];
    if (parameter.role == ZERO_PARAM_BUFFER) {
      *span = zero_span{0, parameter.elements};
    } else {
      *span = plan.owned_span(parameter.root, rank);
    }
  });
}

zero_status zero_group_set(zero_runtime* runtime, zero_group_id group,
                           const zero_group_options* options) {
  return guard_runtime(runtime, [&](zero::engine::Runtime& engine) {
    require(options, "options");
    engine.stepper("zero_group_set").groups().set(group, group_values(options));
  });
}
