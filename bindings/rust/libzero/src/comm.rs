//! Communicators: libzero's own, or a [`Transport`] of yours.
// SPDX-License-Identifier: BSD-3-Clause
use crate::checked::{self, Init};
use crate::config::Config;
use crate::error::{c_text, keep_panic, panic_text, Result};
use libzero_sys::*;
use std::marker::PhantomData;
use std::os::raw::c_void;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::time::Duration;

/// One rank's end of a communicator. It may be sent to another thread, not shared; it may be dropped
/// while a runtime uses it.
#[derive(Debug)]
pub struct Comm {
    pub(crate) handle: *mut zero_comm,
    // one thread at a time
    not_sync: PhantomData<std::cell::Cell<()>>,
}
unsafe impl Send for Comm {}

/// How doubles of all ranks become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Reduce(pub zero_reduce);

impl Reduce {
    /// The sum.
    pub const SUM: Reduce = Reduce(ZERO_REDUCE_SUM);
    /// The largest.
    pub const MAX: Reduce = Reduce(ZERO_REDUCE_MAX);
    /// The smallest.
    pub const MIN: Reduce = Reduce(ZERO_REDUCE_MIN);
}

/// A communicator of the host program's own: it moves bytes, libzero adds. A panic in it becomes an
/// error of the call it ran in.
pub trait Transport: Send + Sync {
    /// recv[i * send.len() ..] is what rank i sent.
    fn all_gather(&self, send: &[u8], recv: &mut [u8]) -> Result<()>;
    /// Block i of send goes to rank i, block i of recv comes from rank i.
    fn all_to_all(&self, send: &[u8], recv: &mut [u8]) -> Result<()>;
    /// Unblocks the others; from any thread.
    fn abort(&self) {}
}

struct Held {
    transport: Box<dyn Transport>,
    size: usize,
}

/// Runs what a callback does; nothing unwinds into C.
fn guarded(work: impl FnOnce() -> Result<()>) -> zero_status {
    let (status, message) = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => return ZERO_OK,
        Ok(Err(error)) => (if error.status == ZERO_OK { ZERO_ERR_USER } else { error.status }, error.message),
        Err(payload) => {
            let text = panic_text(payload.as_ref());
            keep_panic(payload);
            (ZERO_ERR_USER, text)
        }
    };
    if let Ok(text) = c_text("message", &message.replace('\0', " ")) {
        unsafe { zero_set_last_error(status, text.as_ptr()) };
    }
    status
}

/// send may lie within recv: it is copied, so that no two slices overlap.
unsafe fn slices<'a>(send: *const c_void, sent: usize, recv: *mut c_void, received: usize) -> (Vec<u8>, &'a mut [u8]) {
    if sent == 0 || received == 0 {
        return (Vec::new(), &mut []);
    }
    let copy = std::slice::from_raw_parts(send as *const u8, sent).to_vec();
    (copy, std::slice::from_raw_parts_mut(recv as *mut u8, received))
}

unsafe extern "C" fn all_gather(
    user_data: *mut c_void,
    _channel: i32,
    send: *const c_void,
    recv: *mut c_void,
    bytes_each: u64,
    _place: zero_place,
    _stream: *mut c_void,
) -> zero_status {
    let held = &*(user_data as *const Held);
    guarded(|| {
        let each = bytes_each as usize;
        let (send, recv) = slices(send, each, recv, each * held.size);
        held.transport.all_gather(&send, recv)
    })
}

unsafe extern "C" fn all_to_all(
    user_data: *mut c_void,
    _channel: i32,
    send: *const c_void,
    recv: *mut c_void,
    bytes_each: u64,
    _place: zero_place,
    _stream: *mut c_void,
) -> zero_status {
    let held = &*(user_data as *const Held);
    guarded(|| {
        let whole = bytes_each as usize * held.size;
        let (send, recv) = slices(send, whole, recv, whole);
        held.transport.all_to_all(&send, recv)
    })
}

unsafe extern "C" fn abort(user_data: *mut c_void) {
    let held = &*(user_data as *const Held);
    guarded(|| {
        held.transport.abort();
        Ok(())
    });
}

unsafe extern "C" fn destroy(user_data: *mut c_void) {
    guarded(|| {
        drop(Box::from_raw(user_data as *mut Held));
        Ok(())
    });
}

impl Comm {
    fn of(handle: *mut zero_comm) -> Comm {
        Comm { handle, not_sync: PhantomData }
    }

    /// One rank, no transport.
    pub fn alone() -> Result<Comm> {
        Ok(Comm::of(unsafe { checked::comm_create_self()? }))
    }

    /// Ranks of one machine, processes or threads, that meet under a name. Collective.
    pub fn local(group: &str, rank: i32, size: i32, timeout: Duration) -> Result<Comm> {
        Ok(Comm::of(unsafe { checked::comm_create_local(group, rank, size, timeout.as_nanos() as i64)? }))
    }

    /// Whichever the config and the environment name. Collective.
    pub fn from_config(config: &Config) -> Result<Comm> {
        Ok(Comm::of(unsafe { checked::comm_create_from_config(config.handle)? }))
    }

    /// The host program's own.
    pub fn user(rank: i32, size: i32, transport: Box<dyn Transport>) -> Result<Comm> {
        let mut callbacks = zero_comm_callbacks::init();
        callbacks.channels = 1;
        callbacks.all_gather = Some(all_gather);
        callbacks.all_to_all = Some(all_to_all);
        callbacks.abort = Some(abort);
        callbacks.destroy = Some(destroy);
        let held = Box::into_raw(Box::new(Held { transport, size: size.max(0) as usize })) as *mut c_void;
        match unsafe { checked::comm_create_user(rank, size, Some(&callbacks), held) } {
            Ok(handle) => Ok(Comm::of(handle)),
            Err(error) => {
                drop(unsafe { Box::from_raw(held as *mut Held) });
                Err(error)
            }
        }
    }

    /// This rank.
    pub fn rank(&self) -> i32 {
        unsafe { checked::comm_rank(self.handle) }
    }

    /// How many ranks.
    pub fn size(&self) -> i32 {
        unsafe { checked::comm_size(self.handle) }
    }

    /// In place, over all ranks. Collective.
    pub fn all_reduce(&self, values: &mut [f64], op: Reduce) -> Result<()> {
        unsafe { checked::comm_all_reduce(self.handle, values, op.0) }
    }

    /// root's bytes to all. Collective.
    pub fn broadcast(&self, bytes: &mut [u8], root: i32) -> Result<()> {
        unsafe { checked::comm_broadcast(self.handle, bytes, root) }
    }

    /// Waits for all. Collective.
    pub fn barrier(&self) -> Result<()> {
        unsafe { checked::comm_barrier(self.handle) }
    }

    /// Makes every later call on it fail.
    pub fn abort(&self) {
        unsafe { checked::comm_abort(self.handle) }
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        unsafe { checked::comm_destroy(self.handle) }
    }
}
