// Tests and examples find the library where it was linked from.
// SPDX-License-Identifier: BSD-3-Clause
fn main() {
    if let Ok(folder) = std::env::var("DEP_ZERO_LIB_DIR") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{}", folder);
    }
}
