# Julia's arrays as libzero's memory, and the other way round.
# SPDX-License-Identifier: BSD-3-Clause

"""The bits of a bf16 number."""
struct BFloat16
    bits::UInt16
end

"""
    DevicePointer{T}(pointer, size; device=0, stream=C_NULL)

Device memory of elements of `T`, ready in `stream` order: goes wherever an array of gradients does.
Packages of device arrays add a method to `LibZero.device_pointer(array)` that makes one.
"""
struct DevicePointer{T}
    pointer::Ptr{Cvoid}
    size::Tuple{Vararg{Int}}
    device::Int32
    stream::Ptr{Cvoid}
end
DevicePointer{T}(pointer, size; device=0, stream=C_NULL) where {T} =
    DevicePointer{T}(Ptr{Cvoid}(pointer), Tuple(size), device, Ptr{Cvoid}(stream))

device_pointer(array) = nothing

dtype_of(::Type{Float32}) = Raw.ZERO_DTYPE_FP32
dtype_of(::Type{Float16}) = Raw.ZERO_DTYPE_FP16
dtype_of(::Type{BFloat16}) = Raw.ZERO_DTYPE_BF16
dtype_of(::Type{Float64}) = Raw.ZERO_DTYPE_FP64
dtype_of(::Type{Int64}) = Raw.ZERO_DTYPE_INT64
dtype_of(::Type{Int32}) = Raw.ZERO_DTYPE_INT32
dtype_of(::Type{UInt8}) = Raw.ZERO_DTYPE_UINT8
dtype_of(T::Type) = wrong("an array of $T; expected Float32, Float16, BFloat16, Float64, Int64, Int32 or UInt8")

const ELEMENT_TYPES = Dict{Int32,DataType}(dtype_of(T) => T for T in
    (Float32, Float16, BFloat16, Float64, Int64, Int32, UInt8))
element_type(dtype::Integer) = get(() -> wrong("dtype $dtype is not known here"), ELEMENT_TYPES, Int32(dtype))

"""Whether an array's elements lie one after the other, first index fastest."""
function contiguous(array::AbstractArray)
    array isa Array && return true
    array isa StridedArray || return false
    expected = 1
    for d in 1:ndims(array)
        size(array, d) == 1 || stride(array, d) == expected || return false
        expected *= size(array, d)
    end
    return true
end

"""The array itself where it is contiguous, else a copy in its logical order."""
in_logical_order(array::AbstractArray) = contiguous(array) ? array : Array(array)

"""Refuses what cannot be written where it lies."""
function in_place(array, what)
    array isa AbstractArray && contiguous(array) && return array
    wrong("$what is a $(typeof(array)): only a contiguous array can be kept in place, copy it first")
end

"""C's shape: Julia's size, last index first."""
shape_of(array) = Int64[reverse(size(array))...]
shape_of(array::DevicePointer) = Int64[reverse(array.size)...]

function buffer_of(array::AbstractArray{T}) where {T}
    dtype = dtype_of(T)
    return Raw.zero_buffer(Ptr{Cvoid}(pointer(array)), UInt64(sizeof(T) * length(array)), UInt64(length(array)), dtype,
                           Raw.ZERO_PLACE_HOST, Int32(-1), Int32(0))
end
buffer_of(array::DevicePointer{T}) where {T} = Raw.zero_buffer(array.pointer, UInt64(sizeof(T) * prod(array.size)),
    UInt64(prod(array.size)), dtype_of(T), Raw.ZERO_PLACE_DEVICE, array.device, Int32(0))

"""libzero's memory as an array, in place; the array keeps the memory alive."""
function array_of(buffer::Raw.zero_buffer, dims::Tuple{Vararg{Int}}, life::Life)
    T = element_type(buffer.dtype)
    if buffer.place == Raw.ZERO_PLACE_DEVICE
        return DevicePointer{T}(buffer.data, dims; device=buffer.device)
    end
    buffer.count == 0 && return Array{T}(undef, prod(dims) == 0 ? dims : (0,))
    array = unsafe_wrap(Array, Ptr{T}(buffer.data), dims)
    Threads.atomic_add!(life.shown, 1)
    finalizer(_ -> (Threads.atomic_sub!(life.shown, 1); nothing), array)  # see end_life
    return array
end
