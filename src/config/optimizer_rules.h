// What the optimizers and schedules of a DeepSpeed file are called, what they read, and what holds
// where the file does not say.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "config/settings.h"

namespace zero::config {

// Names in any case.  kNone and nullopt: no such optimizer here.
std::optional<OptimizerType> optimizer_type(std::string_view name);
std::optional<ScheduleType> schedule_type(std::string_view name);
// OneBitAdam and its family, which ZeRO refuses by name.
bool is_one_bit(std::string_view name);

// Does an optimizer (a schedule) read this key of its params?
bool optimizer_reads(OptimizerType type, std::string_view key);
bool schedule_reads(ScheduleType type, std::string_view key);

} // namespace zero::config
