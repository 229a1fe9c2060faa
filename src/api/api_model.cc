// zero.h, sections 4 and 5: model and plan.
// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>

#include "api/api_values.h"
#include "api/growing.h"
#include "api/handles.h"
#include "engine/settings_inputs.h"

using namespace zero::api; // the C functions below are outside of any namespace
using zero::fail;

zero_status zero_model_create(zero_model** model) {
  return guard([&] {
    require(model, "model");
    *model = new zero_model;
  });
}

zero_status zero_model_load(const char* path, zero_model** model) {
  return guard([&] {
    require(path, "path");
    require(model, "model");
    *model = new zero_model{zero::plan::load_parameter_table(path)};
  });
}

void zero_model_destroy(zero_model* model) {
  delete model;
}

zero_status zero_model_cast(zero_model* model, zero_dtype dtype) {
  return guard([&] {
    require(model, "model");
    model->table.cast(dtype);
  });
}

int32_t zero_model_param_count(const zero_model* model) {
  return model == nullptr ? 0 : static_cast<int32_t>(model->table.parameters().size());
}

zero_status zero_model_param_at(const zero_model* model, zero_param_id param,
                                zero_param_info* info) {
  return guard([&] {
    require(model, "model");
    check_struct_size(info, "info");
    const auto& parameters = model->table.parameters();
    check_param(parameters.size(), param);
    write_struct(info, param_info(parameters[static_cast<size_t>(param)]));
  });
}

void zero_group_options_init(zero_group_options* options, uint32_t struct_size) {
  zero_group_options defaults{};
  defaults.lr = defaults.weight_decay = defaults.beta1 = defaults.beta2 = NAN;
  defaults.epsilon = defaults.momentum = NAN;
  defaults.lr_scale = 1;
  init_struct(options, struct_size, defaults);
}

zero::plan::GroupValues zero::api::group_values(const zero_group_options* options) {
  zero_group_options defaults;
  zero_group_options_init(&defaults, sizeof(defaults));
  const zero_group_options given =
      options == nullptr ? defaults : read_struct(options, "options", defaults);
  zero::plan::GroupValues values;
  values.frozen = given.frozen != 0;
  values.lr = given.lr;
  values.lr_scale = given.lr_scale;
  values.weight_decay = given.weight_decay;
  values.beta1 = given.beta1;
  values.beta2 = given.beta2;
  values.epsilon = given.epsilon;
  values.momentum = given.momentum;
  return values;
}

zero_status zero_group_add(zero_model* model, const char* name, const zero_group_options* options,
                           zero_group_id* group) {
  return guard([&] {
    require(model, "model");
    require(name, "name");
    require(group, "group");
    *group = model->table.add_group(name, group_values(options));
  });
}

void zero_param_options_init(zero_param_options* options, uint32_t struct_size) {
  zero_param_options defaults{};
  defaults.dtype = ZERO_DTYPE_FP32;
  defaults.tied_to = defaults.unit = defaults.device = -1;
  defaults.place = ZERO_PLACE_HOST;
  init_struct(options, struct_size, defaults);
}

zero_status zero_param_add(zero_model* model, const char* name, const int64_t* shape,
                           int32_t dimensions, const zero_param_options* options,
                           zero_param_id* param) {
  return guard([&] {
    require(model, "model");
    require(name, "name");
    require(param, "param");
    if (dimensions < 0) {
      fail(ZERO_ERR_INVALID_ARGUMENT, "param \"%s\": dimensions is %d, expected 0 or more", name,
           dimensions);
    }
    if (dimensions > 0) require(shape, "shape");
    zero_param_options defaults;
    zero_param_options_init(&defaults, sizeof(defaults));
    const zero_param_options given =
        options == nullptr ? defaults : read_struct(options, "options", defaults);
    zero::plan::Parameter parameter;
    parameter.name = name;
    if (dimensions > 0) parameter.shape.assign(shape, shape + dimensions);
    parameter.dtype = given.dtype;
    parameter.group = given.group;
    parameter.role = given.role;
    parameter.storage = given.storage;
    parameter.tied_to = given.tied_to;
    parameter.unit = given.unit;
    parameter.place = given.place;
    parameter.device = given.device;
    parameter.data = given.data;
    *param = model->table.add(std::move(parameter));
  });
}

zero_status zero_model_backward_order(zero_model* model, const zero_param_id* params,
                                      uint64_t count) {
  return guard([&] {
    require(model, "model");
    if (count > 0) require(params, "params");
    model->table.set_backward_order(std::vector<zero_param_id>(params, params + count));
  });
}

void zero_plan_options_init(zero_plan_options* options, uint32_t struct_size) {
  zero_plan_options defaults{};
  defaults.world_size = 1;
  defaults.place = ZERO_PLACE_HOST;
  defaults.comm = ZERO_COMM_LOCAL;
  init_struct(options, struct_size, defaults);
}

zero_status zero_plan_create(const zero_config* config, const zero_model* model,
                             const zero_plan_options* options, zero_plan** plan) {
  return guard([&] {
    require(config, "config");
    require(model, "model");
    require(plan, "plan");
    zero_plan_options defaults;
    zero_plan_options_init(&defaults, sizeof(defaults));
    const zero_plan_options given =
        options == nullptr ? defaults : read_struct(options, "options", defaults);
    if (given.world_size < 1) {
      fail(ZERO_ERR_INVALID_ARGUMENT, "options->world_size is %d, expected 1 or more",
           given.world_size);
    }
    if (given.place != ZERO_PLACE_HOST && given.place != ZERO_PLACE_DEVICE) {
      fail(ZERO_ERR_INVALID_ARGUMENT, "options->place is %d, expected HOST (1) or DEVICE (3)",
           given.place);
    }
    if (given.comm < ZERO_COMM_SELF || given.comm > ZERO_COMM_USER) {
      fail(ZERO_ERR_INVALID_ARGUMENT, "options->comm is %d, expected 1 to 5", given.comm);
    }
    if (given.comm == ZERO_COMM_SELF && given.world_size > 1) {
      fail(ZERO_ERR_INVALID_ARGUMENT, "options->comm is SELF and world_size %d, expected 1",
           given.world_size);
    }
    zero::engine::PlanSurroundings surroundings;
    surroundings.ranks = given.world_size;
    surroundings.comm = given.world_size == 1 && given.comm == ZERO_COMM_LOCAL
                            ? static_cast<zero_comm_kind>(ZERO_COMM_SELF)
                            : given.comm;
    surroundings.place = given.place;
    surroundings.own_allocator = given.own_allocator != 0;
    *plan = new zero_plan{zero::plan::Plan::make(
        zero::engine::plan_settings(config->config.settings(), surroundings, model->table),
        model->table)};
  });
}

zero_status zero_plan_memory(const zero_plan* plan, int32_t rank, zero_place place,
                             zero_memory_use use, uint64_t* bytes) {
  return guard([&] {
    require(plan, "plan");
    require(bytes, "bytes");
    check_rank(rank, plan->plan->settings.group.ranks);
    check_place_and_use(place, use);
    *bytes = plan->plan->memory.placed[place][use];
  });
}

zero_status zero_plan_text(const zero_plan* plan, char* buffer, uint64_t capacity,
                           uint64_t* length) {
  return guard([&] {
    require(plan, "plan");
    write_text(plan->plan->text(), buffer, capacity, length);
  });
}

void zero_plan_destroy(zero_plan* plan) {
  delete plan;
}
