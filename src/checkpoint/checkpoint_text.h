// A checkpoint for people: a line for the run, then one for each group, blob, parameter, damage.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "checkpoint/checkpoint_reader.h"

namespace zero::checkpoint {

std::string checkpoint_text(const CheckpointReader& reader, const std::vector<Damage>& damages);
std::string damage_text(const Damage& damage);

} // namespace zero::checkpoint
