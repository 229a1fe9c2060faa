// The type of what training::make_model fills with initial values, for tests that only keep it.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "training.h"

namespace training {

template <typename Kept>
Kept kept_by(zero_model* (*)(const ModelSpec&, const RunSpec&, Kept*));
using Values = decltype(kept_by(&make_model));

} // namespace training
