//! Checkpoints: saved and loaded by a runtime, read by anybody.
// SPDX-License-Identifier: BSD-3-Clause
use crate::checked::{self, Init};
use crate::element::{bytes_of_mut, DType, Element};
use crate::error::{c_text, static_text, Result};
use crate::runtime::{Part, Runtime};
use libzero_sys::*;
use std::path::Path;

/// What a checkpoint is of.
pub type CheckpointInfo = zero_checkpoint_info;
/// How to save; `checked::Init::init()` makes the defaults.
pub type SaveOptions = zero_save_options;
/// How to load; `checked::Init::init()` makes the defaults.
pub type LoadOptions = zero_load_options;

/// An opened checkpoint: no runtime, no device, any number of ranks.
#[derive(Debug)]
pub struct Checkpoint {
    handle: *mut zero_checkpoint,
}
unsafe impl Send for Checkpoint {}

fn path_text(path: impl AsRef<Path>) -> String {
    path.as_ref().to_string_lossy().into_owned()
}

impl Checkpoint {
    /// Reads the manifest and checks it.
    pub fn open(path: impl AsRef<Path>) -> Result<Checkpoint> {
        Ok(Checkpoint { handle: unsafe { checked::checkpoint_open(&path_text(path))? } })
    }

    /// Step, stage, world size, ...
    pub fn describe(&self) -> Result<CheckpointInfo> {
        unsafe { checked::checkpoint_describe(self.handle) }
    }

    /// (name, shape, dtype) of a parameter.
    pub fn param_at(&self, index: i64) -> Result<(String, Vec<i64>, DType)> {
        unsafe {
            let info = checked::checkpoint_param_at(self.handle, index)?;
            let shape = if info.dimensions == 0 || info.shape.is_null() {
                Vec::new()
            } else {
                std::slice::from_raw_parts(info.shape, info.dimensions as usize).to_vec()
            };
            Ok((static_text(info.name).to_owned(), shape, DType(info.dtype)))
        }
    }

    /// Elements from `offset` on of one part: VALUE in its dtype, others as f32.
    pub fn read<T: Element>(&self, name: &str, part: Part, index: i32, offset: u64, values: &mut [T]) -> Result<()> {
        let count = values.len() as u64;
        unsafe { checked::checkpoint_read(self.handle, name, part.0, index, offset, count, bytes_of_mut(values)) }
    }

    /// A blob that the program of a rank had put.
    pub fn get(&self, rank: i32, key: &str) -> Result<Vec<u8>> {
        unsafe { checked::checkpoint_get(self.handle, rank, key) }
    }

    /// Reads every byte and compares checksums.
    pub fn verify(&mut self) -> Result<()> {
        unsafe { checked::checkpoint_verify(self.handle) }
    }

    /// What is in it; after verify also each damaged range.
    pub fn text(&self) -> Result<String> {
        unsafe { checked::checkpoint_text(self.handle) }
    }
}

impl Drop for Checkpoint {
    fn drop(&mut self) {
        unsafe { checked::checkpoint_destroy(self.handle) }
    }
}

impl Runtime<'_> {
    /// Writes a checkpoint: path is whole or absent. Collective.
    pub fn save(&mut self, path: impl AsRef<Path>, replace: bool) -> Result<()> {
        let mut options = zero_save_options::init();
        options.replace = i32::from(replace);
        unsafe { checked::checkpoint_save(self.as_ptr(), &path_text(path), Some(&options)) }
    }

    /// The same with every option; `latest` is the name swapped to the new checkpoint. Collective.
    pub fn save_with(&mut self, path: impl AsRef<Path>, options: &SaveOptions, latest: Option<&str>) -> Result<()> {
        let text = latest.map(|name| c_text("latest", name)).transpose()?;
        let mut options = *options;
        options.latest = text.as_ref().map_or(std::ptr::null(), |t| t.as_ptr());
        unsafe { checked::checkpoint_save(self.as_ptr(), &path_text(path), Some(&options)) }
    }

    /// From a checkpoint of any world size and stage. Collective.
    pub fn load(&mut self, checkpoint: &Checkpoint, options: Option<&LoadOptions>) -> Result<()> {
        unsafe { checked::checkpoint_load(self.as_ptr(), checkpoint.handle, options) }
    }

    /// The program's own state of this rank, for the next save.
    pub fn put(&mut self, key: &str, blob: &[u8]) -> Result<()> {
        unsafe { checked::checkpoint_put(self.as_ptr(), key, blob) }
    }

    /// Whole weights as safetensors; max_file_bytes 0: one file. Collective.
    pub fn export_weights(&mut self, path: impl AsRef<Path>, dtype: DType, max_file_bytes: u64) -> Result<()> {
        unsafe { checked::weights_export(self.as_ptr(), &path_text(path), dtype.0, max_file_bytes) }
    }

    /// From a safetensors file, an index or a folder. Collective.
    pub fn import_weights(&mut self, path: impl AsRef<Path>, options: Option<&LoadOptions>) -> Result<()> {
        unsafe { checked::weights_import(self.as_ptr(), &path_text(path), options) }
    }
}
