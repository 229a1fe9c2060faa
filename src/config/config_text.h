// The whole config as text that load_text reads back.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "config/judgement.h"

namespace zero::config {

std::string config_text(const Source& source, const Judgement& judgement);

} // namespace zero::config
