// Two of three give the third; nothing is rounded.
// SPDX-License-Identifier: BSD-3-Clause
#include "config/batch.h"

#include "base/error.h"
#include "config/judgement.h"

namespace zero::config {
namespace {

using Long = long long;

bool multiply(int64_t a, int64_t b, int64_t* product) {
  return !__builtin_mul_overflow(a, b, product);
}

BatchAnswer no_batch_size(const BatchTriple& given) {
  BatchAnswer answer;
  answer.triple = given;
  answer.nothing_given = true;
  answer.error =
      "batch: no usable batch size (need train_batch_size or train_micro_batch_size_per_gpu)";
  return answer;
}

// The third number where train is known and one other is: train / (other x world).
BatchAnswer divide(const BatchTriple& given, int64_t other, int64_t world, bool wants_micro) {
  BatchAnswer answer;
  answer.triple = given;
  int64_t divisor = 0;
  const bool fits = multiply(other, world, &divisor);
  const Long train = given.train;
  if (!fits || given.train % divisor != 0) {
    answer.error =
        wants_micro
            ? format("batch: train_batch_size %lld not divisible by gas %lld x world %lld", train,
                     static_cast<Long>(other), static_cast<Long>(world))
            : format("batch: train_batch_size %lld is not micro %lld x world %lld x integer", train,
                     static_cast<Long>(other), static_cast<Long>(world));
    return answer;
  }
  (wants_micro ? answer.triple.micro : answer.triple.accumulation) = given.train / divisor;
  return answer;
}

} // namespace

BatchAnswer solve_batch(const BatchTriple& given, int64_t world) {
  if (given.train == 0 && given.micro == 0) return no_batch_size(given);
  BatchAnswer answer;
  answer.triple = given;
  if (world == 0) {
    if (given.accumulation == 0 && (given.train == 0 || given.micro == 0)) {
      answer.triple.accumulation = 1;
    }
    return answer;
  }
  BatchTriple& triple = answer.triple;
  if (triple.train != 0 && triple.micro != 0 && triple.accumulation == 0) {
    return divide(triple, triple.micro, world, /*wants_micro=*/false);
  }
  if (triple.accumulation == 0) triple.accumulation = 1;
  if (triple.micro == 0) return divide(triple, triple.accumulation, world, /*wants_micro=*/true);
  int64_t product = 0;
  const bool fits =
      multiply(triple.micro, triple.accumulation, &product) && multiply(product, world, &product);
  if (triple.train == 0 && fits) triple.train = product;
  if (!fits || triple.train != product) {
    answer.error =
        format("batch: train_batch_size %lld is not micro %lld x accumulation %lld x world %lld",
               static_cast<Long>(triple.train), static_cast<Long>(triple.micro),
               static_cast<Long>(triple.accumulation), static_cast<Long>(world));
  }
  return answer;
}

void resolve_batch(const Source& source, Judgement* judgement) {
  const char* keys[] = {"train_batch_size", "train_micro_batch_size_per_gpu",
                        "gradient_accumulation_steps"};
  BatchTriple given;
  int64_t* places[] = {&given.train, &given.micro, &given.accumulation};
  for (int i = 0; i < 3; ++i) {
    if (judgement->given(keys[i])) *places[i] = judgement->integer(keys[i], 0);
  }
  const auto open = [&](int i) { return judgement->values.at(keys[i]).is_hole; };
  BatchAnswer answer = solve_batch(given, judgement->world_size);
  // A hole is no absent key: accumulation is not taken for 1 where the file leaves it open.
  const bool accumulation_open = open(2) && (given.train == 0 || given.micro == 0);
  if (accumulation_open && !answer.nothing_given) {
    answer.triple = given;
    answer.error.clear();
  }
  const int64_t solved[] = {answer.triple.train, answer.triple.micro, answer.triple.accumulation};
  for (int i = 0; i < 3; ++i) {
    const bool is_default = solved[i] == judgement->integer(keys[i], 0) && !open(i);
    if (*places[i] == 0 && solved[i] != 0 && !is_default && answer.error.empty()) {
      judgement->derive(keys[i], Node::number(std::to_string(solved[i])));
    }
  }
  // Who builds a config by calls counts samples itself.
  if (answer.error.empty() || (answer.nothing_given && !source.has_text)) return;
  const char* blamed = given.train != 0 ? keys[0] : given.micro != 0 ? keys[1] : "";
  Diagnostic& finding = judgement->refuse(blamed, answer.error, ZERO_ERR_CONFIG_CONFLICT);
  if (!answer.nothing_given) return;
  finding.status = ZERO_ERR_CONFIG_VALUE;
  finding.concerns_samples_only = true;
}

} // namespace zero::config
