// The host program's own transport behind the seam: two callbacks that move bytes.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>

namespace zero::comm {

// The largest block of one exchange among `size` ranks: send and receive staging of 4 MiB each.
uint64_t user_block_bytes(int32_t size);
uint64_t user_staging_bytes(int32_t size);

// Where a callback's own words are found (zero_set_last_error); set once by src/api.  `take`
// returns "" where the callback said nothing.
void set_callback_message_source(std::string (*take)());

} // namespace zero::comm
