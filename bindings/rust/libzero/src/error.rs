//! Statuses as `Result`, and the helpers of the generated floor.
// SPDX-License-Identifier: BSD-3-Clause
use crate::checked::Init;
use libzero_sys::*;
use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString};
use std::fmt;
use std::os::raw::{c_char, c_void};

/// The result of every fallible call.
pub type Result<T> = std::result::Result<T, Error>;

/// What kind of thing went wrong: the family of a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Family {
    /// The call was wrong: an argument, the moment, a name.
    Call,
    /// The configuration.
    Config,
    /// Memory, disk, system calls.
    Resource,
    /// A peer or the transport; the runtime is failed.
    Comm,
    /// The device; the runtime is failed.
    Device,
    /// A checkpoint or weights file.
    File,
    /// A callback's own status.
    User,
    /// A bug in libzero.
    Internal,
    /// A number that this version of the crate does not know.
    Unknown,
}

/// What a call answered.
#[derive(Clone)]
pub struct Error {
    /// The number; `ZERO_ERR_...` of `libzero_sys`.
    pub status: zero_status,
    /// One sentence.
    pub message: String,
    /// The rank at fault, where known.
    pub rank: Option<i32>,
    /// errno, cudaError_t or ncclResult_t; 0 if none.
    pub native_code: i32,
    /// "libzero", "os", "callback", ...
    pub origin: String,
}

impl Error {
    pub(crate) fn new(status: zero_status, message: impl Into<String>) -> Error {
        Error { status, message: message.into(), rank: None, native_code: 0, origin: "libzero".into() }
    }

    /// An error that a callback of yours returns.
    pub fn user(message: impl Into<String>) -> Error {
        Error { origin: "callback".into(), ..Error::new(ZERO_ERR_USER, message) }
    }

    /// The status's name in C.
    pub fn name(&self) -> &'static str {
        unsafe { static_text(zero_status_name(self.status)) }
    }

    /// The family of the status.
    pub fn family(&self) -> Family {
        match self.status {
            1..=19 => Family::Call,
            20..=39 => Family::Config,
            40..=59 => Family::Resource,
            60..=79 => Family::Comm,
            80..=99 => Family::Device,
            100..=119 => Family::File,
            200..=249 => Family::User,
            250 => Family::Internal,
            _ => Family::Unknown,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name(), self.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.name(), self.status, self.message)
    }
}

impl std::error::Error for Error {}

thread_local! {
    /// What a callback on this thread panicked with, until the call it ran in comes back.
    static PANIC: RefCell<Option<Box<dyn Any + Send>>> = RefCell::new(None);
}

pub(crate) fn keep_panic(payload: Box<dyn Any + Send>) {
    PANIC.with(|slot| *slot.borrow_mut() = Some(payload));
}

/// The text of a panic's payload.
pub(crate) fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".to_owned())
}

/// What the last failed call on this thread said.
pub(crate) fn last_error(status: zero_status) -> Error {
    let panicked = PANIC.with(|slot| slot.borrow_mut().take());
    if let (Some(payload), ZERO_ERR_USER) = (panicked, status) {
        return Error::user(format!("a callback panicked: {}", panic_text(payload.as_ref())));
    }
    let mut info = zero_error_info::init();
    unsafe { zero_last_error(&mut info) };
    if info.status != status {
        return Error::new(status, unsafe { static_text(zero_status_name(status)) });
    }
    let text = |field: &[c_char]| {
        let end = field.iter().position(|c| *c == 0).unwrap_or(field.len());
        String::from_utf8_lossy(&field[..end].iter().map(|c| *c as u8).collect::<Vec<u8>>()).into_owned()
    };
    let mut message = text(&info.message);
    if message.len() > 900 {
        if let Some(whole) = whole_text() {
            message = whole;
        }
    }
    let rank = if info.rank >= 0 { Some(info.rank) } else { None };
    Error { status, message, rank, native_code: info.native_code, origin: text(&info.origin) }
}

fn whole_text() -> Option<String> {
    let mut text = vec![0u8; 16384];
    let mut length = 0u64;
    let status = unsafe { zero_last_error_text(text.as_mut_ptr() as *mut c_char, text.len() as u64, &mut length) };
    text.truncate(length as usize);
    if status == ZERO_OK { Some(into_text(text)) } else { None }
}

#[inline]
pub(crate) fn check(status: zero_status) -> Result<()> {
    if status == ZERO_OK { Ok(()) } else { Err(last_error(status)) }
}

/// Calls with a buffer that is large enough.
pub(crate) fn grow(mut call: impl FnMut(*mut c_void, u64, *mut u64) -> zero_status) -> Result<Vec<u8>> {
    let mut data = vec![0u8; 1024];
    loop {
        let mut length = 0u64;
        let status = call(data.as_mut_ptr() as *mut c_void, data.len() as u64, &mut length);
        if status == ZERO_ERR_BUFFER_TOO_SMALL && length >= data.len() as u64 {
            data = vec![0u8; length as usize + 1];
            continue;
        }
        check(status)?;
        data.truncate(length as usize);
        return Ok(data);
    }
}

pub(crate) fn into_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
}

pub(crate) fn c_text(what: &str, text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::new(ZERO_ERR_INVALID_ARGUMENT, format!("{} {:?} holds a NUL", what, text)))
}

/// Text that lives as long as the program.
pub(crate) unsafe fn static_text(text: *const c_char) -> &'static str {
    if text.is_null() {
        return "";
    }
    CStr::from_ptr(text).to_str().unwrap_or("?")
}
