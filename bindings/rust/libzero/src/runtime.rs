//! The runtime: shards, gradients, loans, steps.
// SPDX-License-Identifier: BSD-3-Clause
use crate::checked::{self, Init};
use crate::comm::Comm;
use crate::config::Config;
use crate::element::{buffer_of, bytes_of, bytes_of_mut, DType, Element};
use crate::error::{Error, Result};
use crate::model::{GroupId, GroupOptions, Model, ParamId};
use libzero_sys::*;
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::ptr;

/// What a step did; times in nanoseconds.
pub type StepInfo = zero_step_info;

/// The level of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Level(pub zero_log_level);

impl Level {
    /// Something failed.
    pub const ERROR: Level = Level(ZERO_LOG_ERROR);
    /// Something to look at.
    pub const WARN: Level = Level(ZERO_LOG_WARN);
    /// Something done.
    pub const INFO: Level = Level(ZERO_LOG_INFO);
    /// For whoever debugs.
    pub const DEBUG: Level = Level(ZERO_LOG_DEBUG);
}

/// One part of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Part(pub zero_part);

impl Part {
    /// The parameter itself.
    pub const VALUE: Part = Part(ZERO_PART_VALUE);
    /// The reduced gradient, between step_begin and step_end.
    pub const GRAD: Part = Part(ZERO_PART_GRAD);
    /// The fp32 master.
    pub const MASTER: Part = Part(ZERO_PART_MASTER);
    /// Optimizer state by index: Adam's 0 is m, 1 is v.
    pub const STATE: Part = Part(ZERO_PART_STATE);
}

type Log = Box<dyn FnMut(Level, &str) + Send>;

/// A rank's runtime. Dropping it destroys it without a word to other ranks; [`Runtime::close`] ends it
/// with them. It can be sent to another thread, and not be shared:
///
/// ```compile_fail
/// fn shared<T: Sync>() {}
/// shared::<libzero::Runtime>();
/// ```
///
/// What a loan shows cannot outlive it, and no step comes between:
///
/// ```compile_fail
/// fn wrong(runtime: &mut libzero::Runtime, w: libzero::ParamId) -> libzero::Result<f32> {
///     let loan = runtime.loan(&[w])?;
///     runtime.step()?;
///     Ok(loan.get::<f32>(0)?[0])
/// }
/// ```
pub struct Runtime<'a> {
    handle: *mut zero_runtime,
    log: RefCell<Option<Log>>,
    in_gradient: Cell<bool>, // and, being a Cell, what makes it not Sync
    borrows: PhantomData<&'a mut [u8]>,
}
unsafe impl Send for Runtime<'_> {}

fn ids(params: &[ParamId]) -> &[zero_param_id] {
    // ParamId is transparent.
    unsafe { std::slice::from_raw_parts(params.as_ptr() as *const zero_param_id, params.len()) }
}

fn typed<T: Element>(buffer: &zero_buffer) -> Result<usize> {
    if buffer.dtype != T::DTYPE.0 {
        let text = format!("the memory is of dtype {}, asked for as dtype {}", buffer.dtype, T::DTYPE.0);
        return Err(Error::new(ZERO_ERR_INVALID_ARGUMENT, text));
    }
    if buffer.place != ZERO_PLACE_HOST && buffer.place != ZERO_PLACE_PINNED {
        return Err(Error::new(ZERO_ERR_INVALID_ARGUMENT, "the memory is on a device: no slice of it"));
    }
    Ok(buffer.count as usize)
}

unsafe fn slice<'s, T: Element>(buffer: &zero_buffer) -> Result<&'s [T]> {
    let count = typed::<T>(buffer)?;
    Ok(if count == 0 { &[] } else { std::slice::from_raw_parts(buffer.data as *const T, count) })
}

unsafe fn slice_mut<'s, T: Element>(buffer: &zero_buffer) -> Result<&'s mut [T]> {
    let count = typed::<T>(buffer)?;
    Ok(if count == 0 { &mut [] } else { std::slice::from_raw_parts_mut(buffer.data as *mut T, count) })
}

impl<'a> Runtime<'a> {
    /// comm None: the one the config and the environment name. Collective.
    pub fn new(config: &Config, comm: Option<&Comm>) -> Result<Runtime<'a>> {
        let mut options = zero_init_options::init();
        if let Some(comm) = comm {
            options.comm = comm.handle;
        }
        let handle = unsafe { checked::init(config.handle, Some(&options))? };
        Ok(Runtime { handle, log: RefCell::new(None), in_gradient: Cell::new(false), borrows: PhantomData })
    }

    /// The handle, for [`checked`] and `libzero_sys`.
    pub fn as_ptr(&self) -> *mut zero_runtime {
        self.handle
    }

    /// Where log lines go: asked after shard, step and close.
    pub fn on_log(&self, log: impl FnMut(Level, &str) + Send + 'static) {
        *self.log.borrow_mut() = Some(Box::new(log));
    }

    fn pump(&self) {
        if let Ok(mut slot) = self.log.try_borrow_mut() {
            if let Some(log) = slot.as_mut() {
                while let Ok((level, text)) = unsafe { checked::log_read(self.handle) } {
                    log(Level(level), &text);
                }
            }
        }
    }

    /// Lays out the shards, agrees with all ranks, allocates all that steps need. Collective.
    pub fn shard(&mut self, model: Model<'a>) -> Result<()> {
        let done = unsafe { checked::shard_params(self.handle, model.handle) };
        self.pump();
        done
    }

    /// Waits for work in flight and ends with the other ranks. Collective.
    pub fn close(self) -> Result<()> {
        let done = unsafe { checked::runtime_close(self.handle) };
        self.pump();
        done
    }

    /// What failed this runtime, if anything did.
    pub fn status(&self) -> Result<()> {
        crate::error::check(unsafe { checked::runtime_status(self.handle) })
    }

    /// Where it stands.
    pub fn text(&self) -> Result<String> {
        unsafe { checked::runtime_text(self.handle) }
    }

    /// This rank and how many there are.
    pub fn rank_and_size(&self) -> (i32, i32) {
        unsafe {
            let comm = checked::runtime_comm(self.handle);
            (checked::comm_rank(comm), checked::comm_size(comm))
        }
    }

    /// Adds doubles (or `op`) over the runtime's ranks, in place. Collective.
    pub fn all_reduce(&self, values: &mut [f64], op: crate::comm::Reduce) -> Result<()> {
        unsafe { checked::comm_all_reduce(checked::runtime_comm(self.handle), values, op.0) }
    }

    /// How many parameters.
    pub fn param_count(&self) -> i32 {
        unsafe { checked::param_count(self.handle) }
    }

    /// By name.
    pub fn find(&self, name: &str) -> Result<ParamId> {
        Ok(ParamId(unsafe { checked::param_find(self.handle, name)? }))
    }

    /// (name, shape, dtype).
    pub fn describe(&self, param: ParamId) -> Result<(String, Vec<i64>, DType)> {
        unsafe {
            let info = checked::param_describe(self.handle, param.0)?;
            let shape = if info.dimensions == 0 || info.shape.is_null() {
                Vec::new()
            } else {
                std::slice::from_raw_parts(info.shape, info.dimensions as usize).to_vec()
            };
            Ok((crate::error::static_text(info.name).to_owned(), shape, DType(info.dtype)))
        }
    }

    /// The whole parameter where it lives between steps (stages 0 to 2).
    pub fn param<T: Element>(&self, param: ParamId) -> Result<&[T]> {
        unsafe { slice(&checked::param_buffer(self.handle, param.0)?) }
    }

    /// (first element, number of elements) of the part that a rank owns.
    pub fn shard_span(&self, param: ParamId, rank: i32) -> Result<(u64, u64)> {
        let span = unsafe { checked::param_shard(self.handle, param.0, rank)? };
        Ok((span.offset, span.count))
    }

    /// New values for a group, between steps.
    pub fn set_group(&mut self, group: GroupId, options: &GroupOptions) -> Result<()> {
        unsafe { checked::group_set(self.handle, group.0, Some(options)) }
    }

    // ---- gradients ---------------------------------------------------------------------------

    /// Whether this micro-batch ends the step; None: as the config says.
    pub fn micro_begin(&self, is_last: Option<bool>) -> Result<()> {
        unsafe { checked::micro_begin(self.handle, is_last.map_or(-1, i32::from)) }
    }

    /// Hands over a complete gradient; it has been read when this returns.
    pub fn submit<T: Element>(&self, param: ParamId, gradient: &[T]) -> Result<()> {
        unsafe { checked::grad_submit(self.handle, param.0, &buffer_of(gradient), ptr::null_mut()) }
    }

    /// The same for memory of any place, on a stream.
    ///
    /// # Safety
    /// The buffer's memory is alive until the stream has read it.
    pub unsafe fn submit_raw(&self, param: ParamId, gradient: &zero_buffer, stream: *mut std::os::raw::c_void) -> Result<()> {
        checked::grad_submit(self.handle, param.0, gradient, stream)
    }

    /// Lets `write` put a gradient where it belongs: every element, or, where the second argument is
    /// true, added to what is there.
    pub fn write_gradient<T: Element>(&self, param: ParamId, write: impl FnOnce(&mut [T], bool)) -> Result<()> {
        if self.in_gradient.replace(true) {
            return Err(Error::new(ZERO_ERR_INVALID_STATE, "a gradient is being written: write_gradient within itself"));
        }
        struct Reset<'c>(&'c Cell<bool>);
        impl Drop for Reset<'_> {
            fn drop(&mut self) {
                self.0.set(false);
            }
        }
        let _reset = Reset(&self.in_gradient);
        let (buffer, add) = unsafe { checked::grad_buffer(self.handle, param.0, ptr::null_mut())? };
        write(unsafe { slice_mut(&buffer)? }, add != 0);
        unsafe { checked::grad_ready(self.handle, &[param.0], ptr::null_mut()) }
    }

    /// No more gradient comes for these in this micro-batch.
    pub fn grads_close(&self, params: &[ParamId]) -> Result<()> {
        unsafe { checked::grads_close(self.handle, ids(params), ptr::null_mut()) }
    }

    /// Ends a micro-batch. Collective.
    pub fn micro_end(&self) -> Result<()> {
        unsafe { checked::micro_end(self.handle, ptr::null_mut()) }
    }

    /// Forgets what the micro-batches since the last step have brought. Collective.
    pub fn grads_clear(&self) -> Result<()> {
        unsafe { checked::grads_clear(self.handle, ptr::null_mut()) }
    }

    // ---- loans ---------------------------------------------------------------------------------

    /// Whole parameters to read, until the guard is dropped or released. Collective.
    pub fn loan(&self, params: &[ParamId]) -> Result<Loan<'_>> {
        let buffers = unsafe { checked::params_acquire(self.handle, ids(params), ptr::null_mut())? };
        Ok(Loan { handle: self.handle, params: params.to_vec(), buffers, open: true, borrow: PhantomData })
    }

    /// Whole parameters to write; [`LoanMut::keep`] makes what was written the value. Collective.
    pub fn loan_mut(&mut self, params: &[ParamId]) -> Result<LoanMut<'_>> {
        for (i, param) in params.iter().enumerate() {
            if params[..i].contains(param) {
                return Err(Error::new(ZERO_ERR_INVALID_ARGUMENT, format!("param {} twice in one loan_mut", param.0)));
            }
        }
        let buffers = unsafe { checked::params_acquire(self.handle, ids(params), ptr::null_mut())? };
        let loan = Loan { handle: self.handle, params: params.to_vec(), buffers, open: true, borrow: PhantomData };
        Ok(LoanMut { loan, exclusive: PhantomData })
    }

    /// A hint, in the order of the coming loans. Collective.
    pub fn prefetch(&self, params: &[ParamId]) -> Result<()> {
        unsafe { checked::params_prefetch(self.handle, ids(params)) }
    }

    /// root's values and buffers to all (stages 0 to 2). Collective.
    pub fn broadcast(&mut self, root: i32) -> Result<()> {
        unsafe { checked::params_broadcast(self.handle, root) }
    }

    // ---- step ------------------------------------------------------------------------------------

    /// Reduces, decides on overflow, clips, updates and gathers. Collective.
    pub fn step(&mut self) -> Result<StepInfo> {
        self.step_with(f64::NAN, f64::NAN)
    }

    /// The same with a learning rate, or a divisor of summed gradients; NaN: neither. Collective.
    pub fn step_with(&mut self, lr: f64, gradient_divisor: f64) -> Result<StepInfo> {
        let options = Self::options(lr, gradient_divisor);
        let done = unsafe { checked::step(self.handle, options.as_ref(), ptr::null_mut()) };
        self.pump();
        done
    }

    fn options(lr: f64, gradient_divisor: f64) -> Option<zero_step_options> {
        if lr.is_nan() && gradient_divisor.is_nan() {
            return None;
        }
        let mut options = zero_step_options::init();
        options.lr = lr;
        options.gradient_divisor = gradient_divisor;
        Some(options)
    }

    /// The first half of a step with an optimizer of your own (libzero.host). Collective.
    pub fn step_begin(&mut self) -> Result<StepInfo> {
        unsafe { checked::step_begin(self.handle, None, ptr::null_mut()) }
    }

    /// Between the halves: `update(gradient, master, states)` of this rank's part of a parameter, as
    /// fp32; not called where no gradient came on any rank.
    pub fn update_shard(
        &mut self,
        param: ParamId,
        states: i32,
        update: impl FnOnce(&[f32], &mut [f32], &mut [&mut [f32]]),
    ) -> Result<()> {
        unsafe {
            let gradient = match checked::shard_buffer(self.handle, param.0, ZERO_PART_GRAD, 0) {
                Ok(buffer) => buffer,
                Err(error) if error.status == ZERO_ERR_NOT_FOUND => return Ok(()),
                Err(error) => return Err(error),
            };
            let master = slice_mut::<f32>(&checked::shard_buffer(self.handle, param.0, ZERO_PART_MASTER, 0)?)?;
            let mut kept = Vec::new();
            for index in 0..states {
                kept.push(slice_mut::<f32>(&checked::shard_buffer(self.handle, param.0, ZERO_PART_STATE, index)?)?);
            }
            update(slice::<f32>(&gradient)?, master, &mut kept);
        }
        Ok(())
    }

    /// The second half. Collective.
    pub fn step_end(&mut self) -> Result<()> {
        let done = unsafe { checked::step_end(self.handle, ptr::null_mut()) };
        self.pump();
        done
    }

    /// Updates done so far.
    pub fn step_count(&self) -> i64 {
        unsafe { checked::step_count(self.handle) }
    }

    /// What the loss is multiplied by before backward.
    pub fn loss_scale(&self) -> f64 {
        unsafe { checked::loss_scale(self.handle) }
    }

    /// The whole of one part, gathered: VALUE in its dtype, others as f32. Collective.
    pub fn get<T: Element>(&self, param: ParamId, part: Part, index: i32, values: &mut [T]) -> Result<()> {
        self.matches::<T>(param, part, values.len())?;
        unsafe { checked::param_get(self.handle, param.0, part.0, index, bytes_of_mut(values)) }
    }

    /// Overwrites one part on all ranks; moments and step count stay. Collective.
    pub fn set<T: Element>(&mut self, param: ParamId, part: Part, index: i32, values: &[T]) -> Result<()> {
        self.matches::<T>(param, part, values.len())?;
        unsafe { checked::param_set(self.handle, param.0, part.0, index, bytes_of(values)) }
    }

    fn matches<T: Element>(&self, param: ParamId, part: Part, count: usize) -> Result<()> {
        let info = unsafe { checked::param_describe(self.handle, param.0)? };
        let dtype = if part == Part::VALUE { info.dtype } else { ZERO_DTYPE_FP32 };
        if T::DTYPE.0 == dtype && info.elements == count as u64 {
            return Ok(());
        }
        let text = format!(
            "param {}: {} values of dtype {}, expected {} of dtype {}",
            param.0, count, T::DTYPE.0, info.elements, dtype
        );
        Err(Error::new(ZERO_ERR_INVALID_ARGUMENT, text))
    }

    /// (planned, current, peak) bytes of one use (`ZERO_MEMORY_...`) of host memory.
    pub fn memory(&self, usage: zero_memory_use) -> Result<(u64, u64, u64)> {
        let found = unsafe { checked::memory_usage(self.handle, ZERO_PLACE_HOST, usage)? };
        Ok((found.planned, found.current, found.peak))
    }
}

impl std::fmt::Debug for Runtime<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Runtime({})", self.text().unwrap_or_else(|error| error.to_string()))
    }
}

impl Drop for Runtime<'_> {
    fn drop(&mut self) {
        unsafe { checked::runtime_destroy(self.handle) }
    }
}

/// Whole parameters on loan; given back when dropped.
#[derive(Debug)]
pub struct Loan<'r> {
    handle: *mut zero_runtime,
    params: Vec<ParamId>,
    buffers: Vec<zero_buffer>,
    open: bool,
    borrow: PhantomData<&'r Runtime<'r>>,
}

impl Loan<'_> {
    /// The i-th of the parameters that were asked for.
    pub fn get<T: Element>(&self, i: usize) -> Result<&[T]> {
        unsafe { slice(self.buffer(i)?) }
    }

    fn buffer(&self, i: usize) -> Result<&zero_buffer> {
        let text = || format!("item {} of a loan of {}", i, self.buffers.len());
        self.buffers.get(i).ok_or_else(|| Error::new(ZERO_ERR_INVALID_ARGUMENT, text()))
    }

    /// Gives it back, and says whether that went well.
    pub fn release(mut self) -> Result<()> {
        self.end(false)
    }

    fn end(&mut self, keep_changes: bool) -> Result<()> {
        if !self.open {
            return Ok(());
        }
        self.open = false;
        unsafe { checked::params_release(self.handle, ids(&self.params), i32::from(keep_changes), ptr::null_mut()) }
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        let _ = self.end(false);
    }
}

/// Whole parameters on loan, to be written.
#[derive(Debug)]
pub struct LoanMut<'r> {
    loan: Loan<'r>,
    exclusive: PhantomData<&'r mut ()>,
}

impl LoanMut<'_> {
    /// The i-th of the parameters that were asked for.
    pub fn get<T: Element>(&self, i: usize) -> Result<&[T]> {
        self.loan.get(i)
    }

    /// The same, to be written.
    pub fn get_mut<T: Element>(&mut self, i: usize) -> Result<&mut [T]> {
        unsafe { slice_mut(self.loan.buffer(i)?) }
    }

    /// Makes what was written the value, and gives it back.
    pub fn keep(mut self) -> Result<()> {
        self.loan.end(true)
    }
}
