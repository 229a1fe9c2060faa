// A run's state as a checkpoint describes it: names, scalars, and which rank's piece each range
// goes to.  The same on all ranks. SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "engine/context.h"
#include "engine/stepper.h"

namespace zero::engine {

// "adam", "sgd", ...: optimizers of one family carry on from each other's states.
std::string optimizer_family(const config::Settings& settings);
// "exp_avg", ...: as torch calls them.
std::vector<std::string> state_names(const config::Settings& settings, int32_t states);

// All but the blobs and the layout: see checkpoint::place_ranges.
checkpoint::Manifest describe_state(const Context& context, Stepper& stepper, bool weights_only);

} // namespace zero::engine
