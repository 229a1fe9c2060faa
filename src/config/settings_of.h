// From a judgement without errors to plain settings.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "config/judgement.h"
#include "config/settings.h"

namespace zero::config {

Settings settings_of(const Judgement& judgement);

} // namespace zero::config
