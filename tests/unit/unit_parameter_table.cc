// What a model accepts and refuses, entry by entry, and the order it works out.
// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <limits>

#include "plan_cases.h"

using namespace plan_cases;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Adding `parameter` is refused with a sentence that names it and holds `words`, and leaves the
// model as it was.
void expect_refused(ParameterTable& model, const Parameter& parameter,
                    std::vector<std::string> words) {
  const size_t before = model.parameters().size();
  words.push_back("\"" + parameter.name + "\"");
  expect_error(ZERO_ERR_INVALID_ARGUMENT, words, [&] { model.add(parameter); });
  EXPECT_EQUAL(model.parameters().size(), before);
}

void elements_are_the_product_of_the_shape(void**) {
  const ParameterTable model =
      model_of({{}, {1}, {7}, {3, 5}, {0}, {0, 8}, {64, 3, 7, 7}, {3218569051}});
  const uint64_t expected[] = {1, 1, 7, 15, 0, 0, 9408, 3218569051};
  for (size_t i = 0; i < model.parameters().size(); ++i) {
    EXPECT_EQUAL(model.parameters()[i].elements, expected[i]);
    EXPECT_EQUAL(model.parameters()[i].root, i);
  }
  EXPECT(model.find("p3") == 3 && model.find("p") == -1);
}

void shapes_that_cannot_be_are_refused(void**) {
  ParameterTable model;
  const int64_t big = int64_t{1} << 32;
  expect_refused(model, param("w", {3, -3}), {"shape[1] is -3", ">= 0"});
  expect_refused(model, param("w", {INT64_MIN}), {"shape[0] is -9223372036854775808"});
  expect_refused(model, param("w", {big, big}), {"more elements than 64 bits"});
  expect_refused(model, param("w", {big, big / 4}), {"more bytes than 64 bits"});
  model.add(param("w", {big, big, 0})); // empty, whatever the rest multiplies to
  EXPECT_EQUAL(model.parameters()[0].elements, 0u);
}

void names_must_be_given_and_unique(void**) {
  ParameterTable model = model_of({{1}});
  expect_error(ZERO_ERR_INVALID_ARGUMENT, {"param 1", "empty"}, [&] { model.add(param("", {1})); });
  expect_refused(model, param("p0", {1}), {"taken by param 0"});
  expect_error(ZERO_ERR_INVALID_ARGUMENT, {"\"default\"", "taken by group 0"},
               [&] { model.add_group("default", GroupValues()); });
  expect_error(ZERO_ERR_INVALID_ARGUMENT, {"group 1", "empty"},
               [&] { model.add_group("", GroupValues()); });
}

void numbers_that_mean_nothing_are_refused(void**) {
  ParameterTable model;
  const auto refuse = [&](const char* word, auto change) {
    Parameter parameter = param("w", {1});
    change(parameter);
    expect_refused(model, parameter, {word});
  };
  refuse("dtype is 0", [](Parameter& p) { p.dtype = 0; });
  refuse("dtype is 8", [](Parameter& p) { p.dtype = 8; });
  refuse("role is 3", [](Parameter& p) { p.role = 3; });
  refuse("role is -1", [](Parameter& p) { p.role = -1; });
  refuse("storage is 2", [](Parameter& p) { p.storage = 2; });
  refuse("place is 4", [](Parameter& p) { p.place = ZERO_PLACE_FILE; });
  refuse("unit is -2", [](Parameter& p) { p.unit = -2; });
  refuse("group is 1", [](Parameter& p) { p.group = 1; });
  refuse("group is -1", [](Parameter& p) { p.group = -1; });
  refuse("tied_to is 0", [](Parameter& p) { p.tied_to = 0; });
  refuse("tied_to is -2", [](Parameter& p) { p.tied_to = -2; });
  refuse("data is NULL", [](Parameter& p) { p.storage = ZERO_STORAGE_CALLER; });
}

void only_floats_up_to_32_bits_are_trained(void**) {
  ParameterTable model;
  for (const zero_dtype dtype :
       {ZERO_DTYPE_FP64, ZERO_DTYPE_INT64, ZERO_DTYPE_INT32, ZERO_DTYPE_UINT8}) {
    Parameter parameter = param("w", {1}, dtype);
    expect_refused(model, parameter, {dtype_name(dtype), "fp32, fp16 or bf16"});
    parameter.role = ZERO_PARAM_BUFFER;
    parameter.name = dtype_name(dtype);
    model.add(parameter);
  }
  for (const zero_dtype dtype : {ZERO_DTYPE_FP32, ZERO_DTYPE_FP16, ZERO_DTYPE_BF16}) {
    model.add(param(dtype_name(dtype), {1}, dtype));
  }
}

void a_frozen_group_freezes_its_parameters(void**) {
  ParameterTable model;
  GroupValues values;
  values.frozen = true;
  const zero_group_id frozen = model.add_group("frozen", values);
  for (const zero_param_role role : {ZERO_PARAM_TRAINED, ZERO_PARAM_FROZEN, ZERO_PARAM_BUFFER}) {
    Parameter parameter = param("p" + std::to_string(role), {1});
    parameter.role = role;
    parameter.group = frozen;
    model.add(parameter);
  }
  EXPECT_EQUAL(model.parameters()[0].role, ZERO_PARAM_FROZEN);
  EXPECT_EQUAL(model.parameters()[1].role, ZERO_PARAM_FROZEN);
  EXPECT_EQUAL(model.parameters()[2].role, ZERO_PARAM_BUFFER);
}

// ---- ties --------------------------------------------------------------------------------------

void a_chain_of_ties_ends_at_one_root(void**) {
  ParameterTable model;
  Parameter root = param("root", {2, 3});
  root.unit = 5;
  root.group = model.add_group("embeddings", GroupValues());
  model.add(root);
  for (const zero_param_id to : {0, 1, 1}) {
    Parameter alias = param("alias" + std::to_string(model.parameters().size()), {2, 3});
    alias.tied_to = to;
    model.add(alias);
  }
  for (size_t i = 1; i < 4; ++i) {
    const Parameter& alias = model.parameters()[i];
    EXPECT(alias.root == 0 && alias.unit == 5 && alias.group == 1);
  }
  EXPECT_EQUAL(model.parameters()[3].tied_to, 1);
  EXPECT(model.backward_order() == std::vector<zero_param_id>{0});
}

void an_alias_that_differs_from_its_root_is_refused(void**) {
  static char memory[2];
  ParameterTable model;
  model.add_group("other", GroupValues());
  model.add(param("root", {2, 3}));
  Parameter callers = param("callers", {2, 3});
  callers.storage = ZERO_STORAGE_CALLER;
  callers.data = &memory[0];
  model.add(callers);
  const auto refuse = [&](const char* word, auto change) {
    Parameter alias = param("alias", {2, 3});
    alias.tied_to = 0;
    change(alias);
    expect_refused(model, alias, {word});
  };
  refuse("shape [3, 2]", [](Parameter& p) { p.shape = {3, 2}; });
  refuse("shape scalar", [](Parameter& p) { p.shape = {}; });
  refuse("dtype bf16", [](Parameter& p) { p.dtype = ZERO_DTYPE_BF16; });
  refuse("frozen parameter", [](Parameter& p) { p.role = ZERO_PARAM_FROZEN; });
  refuse("group 1", [](Parameter& p) { p.group = 1; });
  refuse("tied_to is 2", [](Parameter& p) { p.tied_to = 2; });
  const auto elsewhere = [](Parameter& p) {
    p.storage = ZERO_STORAGE_CALLER;
    p.data = &memory[1];
  };
  refuse("same memory", elsewhere);
  refuse("same memory", [&](Parameter& p) {
    elsewhere(p);
    p.tied_to = 1;
  });
  Parameter same = callers;
  same.name = "same";
  same.tied_to = 1;
  model.add(same);
  same.name = "without data";
  same.data = nullptr; // its root's
  model.add(same);
  EXPECT(model.parameters().back().data == &memory[0]);
}

// ---- backward order
// -------------------------------------------------------------------------------

void the_order_is_the_reverse_of_the_registration(void**) {
  ParameterTable model = model_of({{1}, {1}, {1}});
  Parameter buffer = param("buffer", {1});
  buffer.role = ZERO_PARAM_BUFFER;
  model.add(buffer);
  Parameter alias = param("alias", {1});
  alias.tied_to = 1;
  model.add(alias);
  EXPECT(model.backward_order() == (std::vector<zero_param_id>{2, 1, 0}));
}

void what_an_order_leaves_out_follows_in_reverse(void**) {
  ParameterTable model = model_of({{1}, {1}, {1}, {1}, {1}});
  model.set_backward_order({1, 3});
  EXPECT(model.backward_order() == (std::vector<zero_param_id>{1, 3, 4, 2, 0}));
  model.add(param("late", {1}));
  EXPECT(model.backward_order() == (std::vector<zero_param_id>{1, 3, 5, 4, 2, 0}));
  model.set_backward_order({});
  EXPECT(model.backward_order() == (std::vector<zero_param_id>{5, 4, 3, 2, 1, 0}));
}

void orders_that_make_no_sense_are_refused(void**) {
  ParameterTable model = model_of({{1}, {1}});
  Parameter buffer = param("buffer", {1});
  buffer.role = ZERO_PARAM_BUFFER;
  model.add(buffer);
  Parameter alias = param("alias", {1});
  alias.tied_to = 1;
  model.add(alias);
  model.set_backward_order({0, 1});
  const auto refuse = [&](const std::vector<zero_param_id>& order,
                          const std::vector<std::string>& words) {
    expect_error(ZERO_ERR_INVALID_ARGUMENT, words, [&] { model.set_backward_order(order); });
    EXPECT(model.backward_order() == (std::vector<zero_param_id>{0, 1})); // as it was
  };
  refuse({1, 4}, {"entry 1", "param 4", "4 parameters"});
  refuse({-1}, {"param -1"});
  refuse({1, 0, 1}, {"entry 2", "\"p1\"", "before"});
  refuse({2}, {"\"buffer\"", "no gradient"});
  refuse({3}, {"\"alias\"", "expected \"p1\""});
}

// ---- groups
// -----------------------------------------------------------------------------------------

void hyper_parameters_out_of_range_are_refused(void**) {
  ParameterTable model;
  const auto refuse = [&](const char* what, double GroupValues::*field, double value) {
    GroupValues values;
    values.*field = value;
    expect_error(ZERO_ERR_INVALID_ARGUMENT, {"\"g\"", what}, [&] { model.add_group("g", values); });
    EXPECT_EQUAL(model.groups().size(), 1u);
  };
  for (const double value : {-1.0, -1e-300, kInfinity, -kInfinity}) {
    refuse("lr is", &GroupValues::lr, value);
    refuse("lr_scale is", &GroupValues::lr_scale, value);
    refuse("weight_decay is", &GroupValues::weight_decay, value);
    refuse("beta1 is", &GroupValues::beta1, value);
    refuse("beta2 is", &GroupValues::beta2, value);
    refuse("epsilon is", &GroupValues::epsilon, value);
    refuse("momentum is", &GroupValues::momentum, value);
  }
  for (const double value : {1.0, 1.5}) {
    refuse("beta1 is", &GroupValues::beta1, value);
    refuse("beta2 is", &GroupValues::beta2, value);
    refuse("momentum is", &GroupValues::momentum, value);
  }
}

void nan_is_the_config_s_value(void**) {
  ParameterTable model;
  GroupValues values;
  EXPECT(std::isnan(values.lr) && std::isnan(values.beta2) && values.lr_scale == 1);
  values.lr_scale = kNaN;
  values.lr = 0;
  const zero_group_id group = model.add_group("g", values);
  EXPECT_EQUAL(group, 1);
  EXPECT(model.groups()[1].values.lr_scale == 1 && model.groups()[1].values.lr == 0);
  EXPECT(model.groups()[0].name == "default");
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(elements_are_the_product_of_the_shape),
      cmocka_unit_test(shapes_that_cannot_be_are_refused),
      cmocka_unit_test(names_must_be_given_and_unique),
      cmocka_unit_test(numbers_that_mean_nothing_are_refused),
      cmocka_unit_test(only_floats_up_to_32_bits_are_trained),
      cmocka_unit_test(a_frozen_group_freezes_its_parameters),
      cmocka_unit_test(a_chain_of_ties_ends_at_one_root),
      cmocka_unit_test(an_alias_that_differs_from_its_root_is_refused),
      cmocka_unit_test(the_order_is_the_reverse_of_the_registration),
      cmocka_unit_test(what_an_order_leaves_out_follows_in_reverse),
      cmocka_unit_test(orders_that_make_no_sense_are_refused),
      cmocka_unit_test(hyper_parameters_out_of_range_are_refused),
      cmocka_unit_test(nan_is_the_config_s_value),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
