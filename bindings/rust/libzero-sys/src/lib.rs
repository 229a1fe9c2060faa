//! The C interface of libzero as it is; `zero.h` is its manual. Nothing is checked here: the crate
//! `libzero` is the safe one.
// SPDX-License-Identifier: BSD-3-Clause
#![allow(non_camel_case_types)]

mod raw;
pub use raw::*;
