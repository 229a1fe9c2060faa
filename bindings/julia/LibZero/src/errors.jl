# Statuses as exceptions, and the helpers of the generated floor.
# SPDX-License-Identifier: BSD-3-Clause

"""
What a call answered. `family` is `:call`, `:config`, `:resource`, `:comm`, `:device`, `:file`, `:user`,
`:internal` or `:unknown`; `rank` the rank at fault or -1; `cause` what a callback threw, or nothing.
"""
struct ZeroError <: Exception
    status::Int32
    message::String
    rank::Int32
    native_code::Int32
    origin::String
    cause::Any
end
ZeroError(status, message) = ZeroError(status, message, -1, 0, "libzero", nothing)

function family(status::Integer)
    1 <= status < 20 && return :call
    20 <= status < 40 && return :config
    40 <= status < 60 && return :resource
    60 <= status < 80 && return :comm
    80 <= status < 100 && return :device
    100 <= status < 120 && return :file
    200 <= status < 250 && return :user
    return status == 250 ? :internal : :unknown
end
family(error::ZeroError) = family(error.status)

status_name(status::Integer) = unsafe_string(Raw.zero_status_name(status))

function Base.showerror(io::IO, error::ZeroError)
    print(io, status_name(error.status), ": ", error.message)
    error.cause === nothing || print(io, "\ncaused by ", sprint(showerror, error.cause))
end

wrong(message) = throw(ZeroError(Raw.ZERO_ERR_INVALID_ARGUMENT, message))
wrong_state(message) = throw(ZeroError(Raw.ZERO_ERR_INVALID_STATE, message))

# What a callback threw, until the call it ran in comes back.
const callback_errors = Any[]

function text_of(bytes::NTuple{N,UInt8}) where {N}
    kept = UInt8[]
    for byte in bytes
        byte == 0 && break
        push!(kept, byte)
    end
    return String(kept)
end

@noinline function fail(status)
    info = Ref(initial(Raw.zero_error_info))
    Raw.zero_last_error(info)
    cause = isempty(callback_errors) ? nothing : pop!(callback_errors)
    empty!(callback_errors)
    info[].status == status || throw(ZeroError(status, status_name(status), -1, 0, "libzero", cause))
    message = text_of(info[].message)
    if sizeof(message) > 900
        data, length_ = Vector{UInt8}(undef, 16384), Ref{UInt64}(0)
        if Raw.zero_last_error_text(data, length(data), length_) == Raw.ZERO_OK
            message = String(data[1:length_[]])
        end
    end
    throw(ZeroError(status, message, info[].rank, info[].native_code, text_of(info[].origin), cause))
end

check(status) = status == Raw.ZERO_OK ? nothing : fail(status)

"""Calls with a buffer that is large enough; returns the bytes."""
function grow(call)
    data, length_ = Vector{UInt8}(undef, 1024), Ref{UInt64}(0)
    while true
        status = call(data, length(data), length_)
        if status == Raw.ZERO_ERR_BUFFER_TOO_SMALL && length_[] >= length(data)
            resize!(data, length_[] + 1)
            continue
        end
        check(status)
        return resize!(data, length_[])
    end
end

ref(::Nothing) = C_NULL
ref(value) = Ref(value)

"""A struct whose bytes are all 0."""
cleared(::Type{T}) where {T} = reinterpret_bytes(T, zeros(UInt8, sizeof(T)))
function reinterpret_bytes(::Type{T}, bytes::Vector{UInt8}) where {T}
    GC.@preserve bytes unsafe_load(Ptr{T}(pointer(bytes)))
end

"""The struct with some of its fields replaced."""
function with(value::T; fields...) where {T}
    made = Ref(value)
    GC.@preserve made begin
        start = Ptr{UInt8}(Base.unsafe_convert(Ptr{T}, made))
        for (name, given) in pairs(fields)
            hasfield(T, name) || throw(ArgumentError("$(nameof(T)) has no field $name"))
            index = Base.fieldindex(T, name)
            kind = fieldtype(T, index)
            unsafe_store!(Ptr{kind}(start + fieldoffset(T, index)), convert(kind, given))
        end
    end
    return made[]
end

static_text(text) = text == C_NULL ? "" : unsafe_string(text)

bytes_pointer(array::Array) = Ptr{Cvoid}(pointer(array))
bytes_pointer(array) = Ptr{Cvoid}(pointer(array))
