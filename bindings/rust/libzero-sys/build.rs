// Finds libzero: ZERO_LIB_DIR (the folder of libzero.so), else pkg-config.
// SPDX-License-Identifier: BSD-3-Clause
use std::env;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=ZERO_LIB_DIR");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    let folders = match env::var("ZERO_LIB_DIR") {
        Ok(folder) if !folder.is_empty() => vec![folder],
        _ => from_pkg_config(),
    };
    for folder in &folders {
        println!("cargo:rustc-link-search=native={}", folder);
    }
    println!("cargo:rustc-link-lib=dylib=zero");
    // DEP_ZERO_LIB_DIR of crates that depend on this one: for a run path.
    if let Some(folder) = folders.first() {
        println!("cargo:lib_dir={}", folder);
    }
}

fn from_pkg_config() -> Vec<String> {
    let asked = Command::new("pkg-config").args(["--libs-only-L", "libzero"]).output();
    match asked {
        Ok(answer) if answer.status.success() => String::from_utf8_lossy(&answer.stdout)
            .split_whitespace()
            .filter_map(|word| word.strip_prefix("-L").map(str::to_owned))
            .collect(),
        _ => panic!("libzero was not found: set ZERO_LIB_DIR to the folder of libzero.so, or install libzero.pc"),
    }
}
