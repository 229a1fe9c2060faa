# Communicators: libzero's own, or two Julia functions that move bytes.
# SPDX-License-Identifier: BSD-3-Clause

"""
    Comm()                                   one rank
    Comm(group, rank, size; timeout=600.0)   ranks of one machine that meet under a name
    Comm(config)                             whichever the config and the environment name
    Comm(rank, size, all_gather, all_to_all) the program's own: functions of (send, recv), both bytes

An exception in such a function is the `cause` of the `ZeroError` of the call it ran in.
"""
mutable struct Comm <: Owned
    life::Union{Life,Nothing}
end
destroy_comm(h) = Raw.zero_comm_destroy(h)
Comm() = Comm(Life(Checked.comm_create_self(), destroy_comm))
Comm(group::AbstractString, rank::Integer, size::Integer; timeout=600.0) =
    Comm(Life(Checked.comm_create_local(group, rank, size, round(Int64, timeout * 1e9)), destroy_comm))
Comm(config::Config) = Comm(Life(Checked.comm_create_from_config(handle(config)), destroy_comm))
handle(comm::Comm) = pointer_of(comm, Raw.zero_comm)

mutable struct Transport
    all_gather::Function
    all_to_all::Function
    size::Int
end

function run_callback(user_data::Ptr{Cvoid}, function_of, send::Ptr{Cvoid}, sent, recv::Ptr{Cvoid}, received)
    try
        transport = unsafe_pointer_to_objref(user_data)::Transport
        bytes(p, count) = count == 0 ? UInt8[] : unsafe_wrap(Array, Ptr{UInt8}(p), count)
        function_of(transport)(copy(bytes(send, sent)), bytes(recv, received))
        return Raw.ZERO_OK
    catch thrown
        push!(callback_errors, thrown)
        text = replace(sprint(showerror, thrown), '\0' => ' ')
        Raw.zero_set_last_error(Raw.ZERO_ERR_USER, text)
        return Raw.ZERO_ERR_USER
    end
end

function size_of(user_data)
    return (unsafe_pointer_to_objref(user_data)::Transport).size
end
function on_all_gather(user_data::Ptr{Cvoid}, ::Int32, send::Ptr{Cvoid}, recv::Ptr{Cvoid}, each::UInt64, ::Int32, ::Ptr{Cvoid})
    return run_callback(user_data, t -> t.all_gather, send, Int(each), recv, Int(each) * size_of(user_data))
end
function on_all_to_all(user_data::Ptr{Cvoid}, ::Int32, send::Ptr{Cvoid}, recv::Ptr{Cvoid}, each::UInt64, ::Int32, ::Ptr{Cvoid})
    whole = Int(each) * size_of(user_data)
    return run_callback(user_data, t -> t.all_to_all, send, whole, recv, whole)
end

const callbacks = Ref((C_NULL, C_NULL))
function init_callbacks()
    callbacks[] = (
        @cfunction(on_all_gather, Int32, (Ptr{Cvoid}, Int32, Ptr{Cvoid}, Ptr{Cvoid}, UInt64, Int32, Ptr{Cvoid})),
        @cfunction(on_all_to_all, Int32, (Ptr{Cvoid}, Int32, Ptr{Cvoid}, Ptr{Cvoid}, UInt64, Int32, Ptr{Cvoid})))
end

function Comm(rank::Integer, size::Integer, all_gather::Function, all_to_all::Function)
    transport = Transport(all_gather, all_to_all, size)
    options = with(initial(Raw.zero_comm_callbacks); channels=1, all_gather=callbacks[][1], all_to_all=callbacks[][2])
    made = Checked.comm_create_user(rank, size, options, pointer_from_objref(transport))
    return Comm(Life(made, destroy_comm, transport))
end

rank(comm::Comm) = Int(Raw.zero_comm_rank(handle(comm)))
ranks(comm::Comm) = Int(Raw.zero_comm_size(handle(comm)))

const OPS = Dict(:sum => Raw.ZERO_REDUCE_SUM, :max => Raw.ZERO_REDUCE_MAX, :min => Raw.ZERO_REDUCE_MIN)

"""
    all_reduce!(comm, array; op=:sum, mean=false)

Over all ranks, in doubles; the result is in `array` itself, whatever kind of array it is, and is
returned. An array that cannot be written throws before anything is sent. Collective.
"""
function all_reduce!(comm::Comm, array::AbstractArray{<:AbstractFloat}; op=:sum, mean=false)
    can_write(array) || wrong("a $(typeof(array)) cannot be written: all_reduce! writes into its array")
    values = vec(collect(Float64, array))
    Checked.comm_all_reduce(handle(comm), values, choice(OPS, op, "op"))
    mean && (values ./= ranks(comm))
    copyto!(array, reshape(values, size(array)))
    return array
end
all_reduce!(comm::Comm, value::Real; keywords...) = all_reduce!(comm, Float64[value]; keywords...)[1]
can_write(::Array) = true
can_write(array) = parent(array) !== array && can_write(parent(array))

"""root's bytes to all, in place. Collective."""
function broadcast_bytes!(comm::Comm, array::Array, root=0)
    Checked.comm_broadcast(handle(comm), array, root)
    return array
end
barrier(comm::Comm) = Checked.comm_barrier(handle(comm))
