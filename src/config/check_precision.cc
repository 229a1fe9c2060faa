// fp16, bf16, data_types and the averaging of gradients.
// SPDX-License-Identifier: BSD-3-Clause
#include "base/error.h"
#include "config/judgement.h"
#include "config/option_value.h"

namespace zero::config {
namespace {

void check_loss_scale(Judgement* judgement) {
  const bool is_dynamic = judgement->number("fp16.loss_scale") == 0;
  if (!judgement->truth("fp16.enabled") || !is_dynamic) return;
  for (const char* key : {"fp16.loss_scale_window", "fp16.min_loss_scale"}) {
    if (judgement->number(key) <= 0) {
      judgement->refuse(key, std::string(key) + ": " + to_json(judgement->at(key)) +
                                 ", expected more than 0 where the loss scale is dynamic");
    }
  }
}

void check_param_dtype(Judgement* judgement) {
  const char* key = "data_types.param_dtype";
  if (!judgement->given(key)) return;
  const std::string wanted = judgement->text(key);
  const bool fp16 = judgement->truth("fp16.enabled");
  const bool bf16 = judgement->truth("bf16.enabled");
  const bool agrees = fp16   ? wanted == "fp16" || wanted == "float16"
                      : bf16 ? wanted == "bf16" || wanted == "bfloat16"
                             : wanted == "fp32" || wanted == "float32";
  if (agrees) return;
  judgement->refuse(
      key,
      format("%s: %s, but the file trains in %s; expected the same", key, wanted.c_str(),
             fp16   ? "fp16"
             : bf16 ? "bf16"
                    : "fp32"),
      ZERO_ERR_CONFIG_CONFLICT);
}

void check_averaging(Judgement* judgement) {
  const char* factor = "gradient_predivide_factor";
  if (judgement->number(factor) <= 0) {
    judgement->refuse(factor, std::string(factor) + ": " + to_json(judgement->at(factor)) +
                                  ", expected more than 0");
  }
  const bool is_sum = judgement->text("gradient_allreduce_op") == "sum";
  if (is_sum && judgement->integer("zero_optimization.stage", 0) == 3) {
    judgement->refuse("gradient_allreduce_op",
                      "gradient_allreduce_op: sum is for stages 0 to 2, the file has stage 3",
                      ZERO_ERR_CONFIG_CONFLICT);
  }
  for (const char* key : {"prescale_gradients", "gradient_predivide_factor"}) {
    const Node& value = judgement->at(key);
    const bool asked = value.truth || (value.is(NodeKind::kNumber) && judgement->number(key) != 1);
    if (!asked) continue;
    judgement->notes.push_back(
        std::string(key) +
        ": no effect here. Contributions are added in fp32 and divided once, so that no sum of "
        "16-bit gradients can overflow, which is what dividing before is for");
  }
}

} // namespace

void check_precision(Judgement* judgement) {
  if (judgement->truth("fp16.enabled") && judgement->truth("bf16.enabled")) {
    judgement->refuse("fp16.enabled",
                      "fp16.enabled: true, and so is bf16.enabled; expected one of them",
                      ZERO_ERR_CONFIG_CONFLICT);
  }
  check_loss_scale(judgement);
  check_param_dtype(judgement);
  check_averaging(judgement);
}

} // namespace zero::config
