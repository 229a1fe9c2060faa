//! Element types: what a slice of numbers is to libzero.
// SPDX-License-Identifier: BSD-3-Clause
use libzero_sys::*;

/// An element type by its number: any number may come from a newer library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct DType(pub zero_dtype);

impl DType {
    /// 4-byte floating point.
    pub const FP32: DType = DType(ZERO_DTYPE_FP32);
    /// 2-byte floating point, 5 bits of exponent.
    pub const FP16: DType = DType(ZERO_DTYPE_FP16);
    /// 2-byte floating point, 8 bits of exponent.
    pub const BF16: DType = DType(ZERO_DTYPE_BF16);
    /// 8-byte floating point.
    pub const FP64: DType = DType(ZERO_DTYPE_FP64);
    /// 8-byte integers.
    pub const INT64: DType = DType(ZERO_DTYPE_INT64);
    /// 4-byte integers.
    pub const INT32: DType = DType(ZERO_DTYPE_INT32);
    /// Bytes.
    pub const UINT8: DType = DType(ZERO_DTYPE_UINT8);

    /// Bytes an element; None for a number this crate does not know.
    pub fn bytes(self) -> Option<usize> {
        match self {
            DType::FP32 | DType::INT32 => Some(4),
            DType::FP16 | DType::BF16 => Some(2),
            DType::FP64 | DType::INT64 => Some(8),
            DType::UINT8 => Some(1),
            _ => None,
        }
    }
}

/// The bits of a bf16 number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Bf16(pub u16);

/// The bits of an fp16 number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct F16(pub u16);

/// A type of numbers that libzero knows.
///
/// # Safety
/// `DTYPE` is the dtype of the type's very bytes, and any bytes are a value of it.
pub unsafe trait Element: Copy + 'static {
    /// Its number.
    const DTYPE: DType;
}
unsafe impl Element for f32 {
    const DTYPE: DType = DType::FP32;
}
unsafe impl Element for f64 {
    const DTYPE: DType = DType::FP64;
}
unsafe impl Element for i64 {
    const DTYPE: DType = DType::INT64;
}
unsafe impl Element for i32 {
    const DTYPE: DType = DType::INT32;
}
unsafe impl Element for u8 {
    const DTYPE: DType = DType::UINT8;
}
unsafe impl Element for Bf16 {
    const DTYPE: DType = DType::BF16;
}
unsafe impl Element for F16 {
    const DTYPE: DType = DType::FP16;
}

pub(crate) fn bytes_of<T: Element>(values: &[T]) -> &[u8] {
    unsafe { std::slice::from_raw_parts(values.as_ptr() as *const u8, std::mem::size_of_val(values)) }
}

pub(crate) fn bytes_of_mut<T: Element>(values: &mut [T]) -> &mut [u8] {
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr() as *mut u8, std::mem::size_of_val(values)) }
}

pub(crate) fn buffer_of<T: Element>(values: &[T]) -> zero_buffer {
    zero_buffer {
        data: values.as_ptr() as *mut _,
        bytes: std::mem::size_of_val(values) as u64,
        count: values.len() as u64,
        dtype: T::DTYPE.0,
        place: ZERO_PLACE_HOST,
        device: -1,
        reserved: 0,
    }
}
