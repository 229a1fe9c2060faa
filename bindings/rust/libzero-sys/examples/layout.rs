//! Sizes and offsets of every struct, one a line: struct, field, offset, size.
// SPDX-License-Identifier: BSD-3-Clause
fn main() {
    for (name, size, fields) in libzero_sys::layout() {
        println!("{}\t\t{}\t0", name, size);
        for (field, offset, size) in fields {
            println!("{}\t{}\t{}\t{}", name, field, offset, size);
        }
    }
}
