//! Models (names, shapes, groups) and plans.
// SPDX-License-Identifier: BSD-3-Clause
use crate::checked::{self, Init};
use crate::config::Config;
use crate::element::{DType, Element};
use crate::error::{Error, Result};
use libzero_sys::*;
use std::marker::PhantomData;
use std::path::Path;

/// A parameter: 0, 1, 2, ... in the order of registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct ParamId(pub zero_param_id);

/// A parameter group; 0 exists from the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct GroupId(pub zero_group_id);

/// What a parameter is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Role(pub zero_param_role);

impl Role {
    /// Has gradients and optimizer state.
    pub const TRAINED: Role = Role(ZERO_PARAM_TRAINED);
    /// No gradient, no state; sharded at stage 3.
    pub const FROZEN: Role = Role(ZERO_PARAM_FROZEN);
    /// Whole on every rank, in checkpoints.
    pub const BUFFER: Role = Role(ZERO_PARAM_BUFFER);
}

/// What else can be said of a parameter.
#[derive(Clone, Copy, Debug)]
pub struct ParamOptions {
    /// Its group.
    pub group: GroupId,
    /// Its role.
    pub role: Role,
    /// An earlier parameter whose storage this one is.
    pub tied_to: Option<ParamId>,
    /// Stage 3: parameters of one unit are gathered together.
    pub unit: Option<i32>,
}

impl Default for ParamOptions {
    fn default() -> Self {
        ParamOptions { group: GroupId(0), role: Role::TRAINED, tied_to: None, unit: None }
    }
}

/// Values of a group; NaN: the config's.
pub type GroupOptions = zero_group_options;

/// Parameters by name. Slices given to [`Model::add`] are borrowed until [`crate::Runtime::shard`] has
/// read them, those of [`Model::add_in_place`] as long as the runtime lives.
#[derive(Debug)]
pub struct Model<'a> {
    pub(crate) handle: *mut zero_model,
    borrows: PhantomData<&'a mut [u8]>,
}
unsafe impl Send for Model<'_> {}

fn elements(shape: &[i64]) -> usize {
    shape.iter().map(|n| (*n).max(0) as usize).product()
}

impl<'a> Model<'a> {
    /// An empty model.
    pub fn new() -> Result<Model<'a>> {
        Ok(Model { handle: unsafe { checked::model_create()? }, borrows: PhantomData })
    }

    /// Names, shapes and dtypes from a TSV list, a safetensors file, an index or a folder.
    pub fn load(path: impl AsRef<Path>) -> Result<Model<'a>> {
        let handle = unsafe { checked::model_load(&path.as_ref().to_string_lossy())? };
        Ok(Model { handle, borrows: PhantomData })
    }

    /// Options of a group with every value the config's.
    pub fn group_options() -> GroupOptions {
        GroupOptions::init()
    }

    /// A new group.
    pub fn group(&mut self, name: &str, options: &GroupOptions) -> Result<GroupId> {
        Ok(GroupId(unsafe { checked::group_add(self.handle, name, Some(options))? }))
    }

    /// A parameter with its first values, row by row; they are read once.
    pub fn add<T: Element>(&mut self, name: &str, shape: &[i64], values: &'a [T], options: &ParamOptions) -> Result<ParamId> {
        self.fits(name, shape, values.len())?;
        self.register(name, shape, T::DTYPE, values.as_ptr() as *mut _, ZERO_STORAGE_LIBRARY, options)
    }

    /// A parameter of zeros.
    pub fn add_zeros(&mut self, name: &str, shape: &[i64], dtype: DType, options: &ParamOptions) -> Result<ParamId> {
        self.register(name, shape, dtype, std::ptr::null_mut(), ZERO_STORAGE_LIBRARY, options)
    }

    /// A parameter that stays where it is and is kept up to date there (stages 0 to 2).
    pub fn add_in_place<T: Element>(
        &mut self,
        name: &str,
        shape: &[i64],
        values: &'a mut [T],
        options: &ParamOptions,
    ) -> Result<ParamId> {
        self.fits(name, shape, values.len())?;
        self.register(name, shape, T::DTYPE, values.as_mut_ptr() as *mut _, ZERO_STORAGE_CALLER, options)
    }

    /// The order in which gradients are finished, where it is not the reverse of the registration.
    pub fn backward_order(&mut self, params: &[ParamId]) -> Result<()> {
        let ids: Vec<zero_param_id> = params.iter().map(|p| p.0).collect();
        unsafe { checked::model_backward_order(self.handle, &ids) }
    }

    fn fits(&self, name: &str, shape: &[i64], given: usize) -> Result<()> {
        if elements(shape) == given {
            return Ok(());
        }
        let text = format!("param {:?}: {} values for shape {:?}, expected {}", name, given, shape, elements(shape));
        Err(Error::new(ZERO_ERR_INVALID_ARGUMENT, text))
    }

    fn register(
        &mut self,
        name: &str,
        shape: &[i64],
        dtype: DType,
        data: *mut std::os::raw::c_void,
        storage: zero_storage,
        options: &ParamOptions,
    ) -> Result<ParamId> {
        let mut made = zero_param_options::init();
        made.dtype = dtype.0;
        made.group = options.group.0;
        made.role = options.role.0;
        made.storage = storage;
        made.tied_to = options.tied_to.map_or(-1, |p| p.0);
        made.unit = options.unit.unwrap_or(-1);
        made.place = ZERO_PLACE_HOST;
        made.data = if elements(shape) == 0 { std::ptr::null_mut() } else { data };
        Ok(ParamId(unsafe { checked::param_add(self.handle, name, shape, Some(&made))? }))
    }
}

impl Drop for Model<'_> {
    fn drop(&mut self) {
        unsafe { checked::model_destroy(self.handle) }
    }
}

/// What every rank would hold, byte for byte; needs no device and no other rank.
#[derive(Debug)]
pub struct Plan {
    handle: *mut zero_plan,
}
unsafe impl Send for Plan {}

impl Plan {
    /// For host memory and the local communicator.
    pub fn new(config: &Config, model: &Model<'_>, world_size: i32) -> Result<Plan> {
        let mut options = zero_plan_options::init();
        options.world_size = world_size;
        Ok(Plan { handle: unsafe { checked::plan_create(config.handle, model.handle, Some(&options))? } })
    }

    /// Bytes of one use (`ZERO_MEMORY_...`) on one rank.
    pub fn memory(&self, rank: i32, usage: zero_memory_use) -> Result<u64> {
        unsafe { checked::plan_memory(self.handle, rank, ZERO_PLACE_HOST, usage) }
    }

    /// One line a bucket.
    pub fn text(&self) -> Result<String> {
        unsafe { checked::plan_text(self.handle) }
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        unsafe { checked::plan_destroy(self.handle) }
    }
}
