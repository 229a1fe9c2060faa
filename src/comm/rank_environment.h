// The part of the environment that names the job, apart from ranks: see read_rank_environment.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace zero::comm {

// What the ranks of one run share and other runs on this machine do not: LIBZERO_JOB, or what the
// launcher set; "" where nothing is.
std::string read_job_name();

} // namespace zero::comm
