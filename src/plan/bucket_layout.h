// Fills buckets from the members of each class: when a bucket closes, what is padded, where
// everything starts, and the buckets' numbers.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include "plan/plan.h"

namespace zero::plan {

// Where a bucket of a class of so many (real) elements closes.  DeepSpeed's size is a ceiling: a
// 64th of the class keeps the pool small beside the model; below 2^18 elements nothing is gained
// by smaller ones.  0: every parameter is a bucket of its own.
uint64_t bucket_limit(const PlanSettings& settings, uint64_t class_elements);

// A parameter above this is `large`: its bucket uses the class's large slot.  Four limits, counted
// from the least limit of 2^18, so that small bucket sizes make no small parameter large.
uint64_t large_limit(const PlanSettings& settings, uint64_t class_elements);

// Buckets of all classes, numbered; fills buckets, elements and shard_elements of each class.
// unit_of is a parameter's gather unit, at which buckets close at stage 3; empty: they do not.
std::vector<Bucket> make_buckets(const PlanSettings& settings, const ParameterTable& model,
                                 const std::vector<zero_param_id>& order,
                                 const std::vector<int32_t>& unit_of,
                                 std::vector<ParameterClass>& classes);

} // namespace zero::plan
