//! ZeRO training as an embedded runtime: optimizer state, gradients and parameters sharded over the
//! ranks, for a training loop of your own.
//!
//! Three floors: `libzero_sys` is the C interface, [`checked`] turns each status into a
//! [`Result`], and the types here are the safe one. The thread rules of `zero.h` are the types':
//! a [`Runtime`] can be sent to another thread and not be shared.
//!
//! ```no_run
//! use libzero::{Config, Model, ParamOptions, Runtime};
//! # fn main() -> libzero::Result<()> {
//! let weights = vec![0.0f32; 6];
//! let mut model = Model::new()?;
//! let w = model.add("w", &[2, 3], &weights, &ParamOptions::default())?;
//! let mut runtime = Runtime::new(&Config::load("ds.json")?, None)?;
//! runtime.shard(model)?;
//! runtime.submit(w, &[0.5f32; 6])?;
//! println!("norm {}", runtime.step()?.grad_norm);
//! runtime.close()
//! # }
//! ```
// SPDX-License-Identifier: BSD-3-Clause
#![warn(missing_docs)]

#[allow(missing_docs)]
pub mod checked;
mod checkpoint;
mod comm;
mod config;
mod element;
mod error;
#[cfg(doctest)]
mod misuse;
mod model;
mod runtime;

pub use checkpoint::{Checkpoint, CheckpointInfo, LoadOptions, SaveOptions};
pub use comm::{Comm, Reduce, Transport};
pub use config::{Config, Diagnostic};
pub use element::{Bf16, DType, Element, F16};
pub use error::{Error, Family, Result};
pub use model::{GroupId, GroupOptions, Model, ParamId, ParamOptions, Plan, Role};
pub use runtime::{Level, Loan, LoanMut, Part, Runtime, StepInfo};

/// The loaded library's version, with its revision.
pub fn version() -> &'static str {
    unsafe { checked::version_string() }
}
