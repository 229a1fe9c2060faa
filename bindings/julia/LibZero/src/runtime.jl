# The runtime: shards, gradients, loans, steps.
# SPDX-License-Identifier: BSD-3-Clause

const Param = Union{Integer,AbstractString,Symbol}

"""
    Runtime(config; comm=nothing)
    Runtime(config, model; comm=nothing)
    Runtime(config, model) do runtime ... end

A rank's runtime. The `do` form closes it with all ranks at the end, or, on an exception, lets go of it
without waiting for them. Calls are made by one thread at a time; parameters are named by name or id.
A finalizer never communicates.
"""
mutable struct Runtime <: Owned
    life::Union{Life,Nothing}
    busy::Threads.Atomic{Int}
    ids::Dict{String,Int32}
    dims::Dict{Int32,Tuple{Vararg{Int}}}
end

function Runtime(config::Config, model=nothing; comm=nothing, device=-1)
    options = with(initial(Raw.zero_init_options); device=device, comm=comm === nothing ? C_NULL : handle(comm))
    made = Checked.init(handle(config), options)
    life = Life(made, h -> Raw.zero_runtime_destroy(h), comm === nothing ? nothing : comm.life)
    runtime = Runtime(life, Threads.Atomic{Int}(0), Dict{String,Int32}(), Dict{Int32,Tuple{Vararg{Int}}}())
    if model !== nothing
        try
            shard!(runtime, model)
        catch
            destroy!(runtime)
            rethrow()
        end
    end
    return runtime
end
function Runtime(work::Function, config::Config, model=nothing; keywords...)
    runtime = Runtime(config, model; keywords...)
    result = try
        work(runtime)
    catch
        destroy!(runtime)
        rethrow()
    end
    close!(runtime)
    return result
end

handle(runtime::Runtime) = pointer_of(runtime, Raw.zero_runtime)

"""Runs `work(handle)`, refusing a second thread."""
@inline function one_thread(work, runtime::Runtime)
    h = handle(runtime)
    Threads.atomic_cas!(runtime.busy, 0, 1) == 0 ||
        wrong_state("another thread is in a call on this runtime: one thread at a time")
    try
        return work(h)
    finally
        runtime.busy[] = 0
    end
end

"""Waits for work in flight, agrees with the other ranks to end, and lets go. Collective."""
function close!(runtime::Runtime)
    isopen(runtime) || return nothing
    try
        one_thread(Checked.runtime_close, runtime)
        pump_log(runtime)
    finally
        destroy!(runtime)
    end
    return nothing
end

"""Lays out the shards of a model, agrees with all ranks, allocates all that steps need. Collective."""
function shard!(runtime::Runtime, model::Model)
    one_thread(h -> Checked.shard_params(h, handle(model)), runtime)
    append!(life_of(runtime).keeps, life_of(model).keeps)
    pump_log(runtime)
    return runtime
end

rank(runtime::Runtime) = Int(Raw.zero_comm_rank(Raw.zero_runtime_comm(handle(runtime))))
ranks(runtime::Runtime) = Int(Raw.zero_comm_size(Raw.zero_runtime_comm(handle(runtime))))
"""A value of the config as it took effect."""
Base.getindex(runtime::Runtime, key::AbstractString) = Checked.config_get(Raw.zero_runtime_config(handle(runtime)), key)
"""Where it stands."""
Base.string(runtime::Runtime) = Checked.runtime_text(handle(runtime))
"""Throws what failed this runtime, also between calls."""
status(runtime::Runtime) = check(Raw.zero_runtime_status(handle(runtime)))

find(::Runtime, id::Integer) = Int32(id)
find(runtime::Runtime, name::Symbol) = find(runtime, String(name))
"""The id of a parameter."""
find(runtime::Runtime, name::AbstractString) =
    get!(() -> Checked.param_find(handle(runtime), name), runtime.ids, String(name))
find_all(runtime::Runtime, params) = Int32[find(runtime, p) for p in params]

"""`(name, size, type, group, role)` of a parameter; the size is Julia's."""
function describe(runtime::Runtime, which::Param)
    info = Checked.param_describe(handle(runtime), find(runtime, which))
    dims = Tuple(Int(unsafe_load(info.shape, i)) for i in info.dimensions:-1:1)
    return (name=static_text(info.name), size=dims, type=element_type(info.dtype), group=info.group, role=info.role)
end
size_of_param(runtime::Runtime, id::Int32) = get!(() -> describe(runtime, id).size, runtime.dims, id)

"""The whole parameter where it lives between steps, in its size (stages 0 to 2)."""
function param(runtime::Runtime, which::Param)
    id = find(runtime, which)
    buffer = one_thread(h -> Checked.param_buffer(h, id), runtime)
    return array_of(buffer, size_of_param(runtime, id), life_of(runtime))
end

"""First index (from 1) and number of elements of the part that a rank owns."""
function shard_range(runtime::Runtime, which::Param, of_rank=rank(runtime))
    span = Checked.param_shard(handle(runtime), find(runtime, which), of_rank)
    return Int(span.offset)+1:Int(span.offset + span.count)
end

"""New values for a group, between steps."""
set_group!(runtime::Runtime, group; values...) =
    one_thread(h -> Checked.group_set(h, group, with(initial(Raw.zero_group_options); values...)), runtime)

# ---- gradients -------------------------------------------------------------------------------------

micro_begin!(runtime::Runtime, is_last=nothing) =
    one_thread(h -> Checked.micro_begin(h, is_last === nothing ? -1 : Int(is_last)), runtime)

"""
    submit!(runtime, param, gradient)

Hands over a complete gradient of the parameter's size, which has been read when this returns
(a `DevicePointer`: in its stream's order).
"""
function submit!(runtime::Runtime, which::Param, gradient::AbstractArray)
    id = find(runtime, which)
    dims = size_of_param(runtime, id)
    size(gradient) == dims || length(gradient) == prod(dims) ||
        wrong("the gradient of $which has size $(size(gradient)), expected $dims")
    given = in_logical_order(gradient)
    GC.@preserve given one_thread(h -> Checked.grad_submit(h, id, buffer_of(given), C_NULL), runtime)
    return nothing
end
submit!(runtime::Runtime, which::Param, gradient::DevicePointer) =
    one_thread(h -> Checked.grad_submit(h, find(runtime, which), buffer_of(gradient), gradient.stream), runtime)
function submit!(runtime::Runtime, which::Param, gradient)
    device = device_pointer(gradient)
    device === nothing && wrong("$(typeof(gradient)) is no array")
    return submit!(runtime, which, device)
end

"""
    gradient!(write, runtime, param)

`write(array, add)` puts a gradient where it belongs: every element, or, where `add`, added to it.
"""
function gradient!(write::Function, runtime::Runtime, which::Param)
    id = find(runtime, which)
    buffer, add = one_thread(h -> Checked.grad_buffer(h, id, C_NULL), runtime)
    write(array_of(buffer, size_of_param(runtime, id), life_of(runtime)), add != 0)
    return grad_ready!(runtime, (id,))
end
grad_ready!(runtime::Runtime, params) = Checked.grad_ready(handle(runtime), find_all(runtime, params), C_NULL)
grads_close!(runtime::Runtime, params) =
    one_thread(h -> Checked.grads_close(h, find_all(runtime, params), C_NULL), runtime)
"""Ends a micro-batch. Collective."""
micro_end!(runtime::Runtime) = one_thread(h -> Checked.micro_end(h, C_NULL), runtime)
"""Forgets what the micro-batches since the last step have brought. Collective."""
grads_clear!(runtime::Runtime) = one_thread(h -> Checked.grads_clear(h, C_NULL), runtime)

# ---- loans -------------------------------------------------------------------------------------------

"""
    loan(runtime, params; keep=false) do arrays... end

Whole parameters, each in its size, until the block ends. `keep`: what was written into them becomes
the value, unless the block throws. The arrays must not be used after it. Collective.
"""
function loan(work::Function, runtime::Runtime, params; keep=false, stream=C_NULL)
    ids = find_all(runtime, params)
    buffers = one_thread(h -> Checked.params_acquire(h, ids, stream), runtime)
    kept = false
    try
        life = life_of(runtime)
        arrays = [array_of(b, size_of_param(runtime, id), life) for (id, b) in zip(ids, buffers)]
        result = work(arrays...)
        kept = keep
        return result
    finally
        isopen(runtime) && one_thread(h -> Checked.params_release(h, ids, Int32(kept), stream), runtime)
    end
end
"""A hint, in the order of the coming loans. Collective."""
prefetch!(runtime::Runtime, params) = one_thread(h -> Checked.params_prefetch(h, find_all(runtime, params)), runtime)
"""root's values and buffers to all (stages 0 to 2). Collective."""
broadcast_params!(runtime::Runtime, root=0) = one_thread(h -> Checked.params_broadcast(h, root), runtime)

# ---- step ----------------------------------------------------------------------------------------------

function step_options(lr, gradient_divisor)
    lr === nothing && gradient_divisor === nothing && return nothing
    return with(initial(Raw.zero_step_options); lr=something(lr, NaN), gradient_divisor=something(gradient_divisor, NaN))
end

"""
    step!(runtime; lr=nothing, gradient_divisor=nothing)

Reduces, decides on overflow, clips, updates and gathers; returns a `zero_step_info` (`skipped`, `step`,
`lr`, `grad_norm`, `loss_scale`, ...; times are nanoseconds). Collective.
"""
function step!(runtime::Runtime; lr=nothing, gradient_divisor=nothing, stream=C_NULL)
    info = one_thread(h -> Checked.step(h, step_options(lr, gradient_divisor), stream), runtime)
    pump_log(runtime)
    return info
end
step_begin!(runtime::Runtime; lr=nothing, gradient_divisor=nothing) =
    one_thread(h -> Checked.step_begin(h, step_options(lr, gradient_divisor), C_NULL), runtime)
step_end!(runtime::Runtime) = one_thread(h -> Checked.step_end(h, C_NULL), runtime)
step_count(runtime::Runtime) = Raw.zero_step_count(handle(runtime))
loss_scale(runtime::Runtime) = Raw.zero_loss_scale(handle(runtime))

const PARTS = Dict(:value => Raw.ZERO_PART_VALUE, :grad => Raw.ZERO_PART_GRAD, :master => Raw.ZERO_PART_MASTER,
    :state => Raw.ZERO_PART_STATE)

"""This rank's part of one parameter, in place and flat: `:value`, `:grad`, `:master`, `:state`."""
function shard_array(runtime::Runtime, which::Param, of=:value, index=0)
    buffer = one_thread(h -> Checked.shard_buffer(h, find(runtime, which), choice(PARTS, of, "part"), index), runtime)
    return array_of(buffer, (Int(buffer.count),), life_of(runtime))
end

part_type(runtime, which, of) = of == :value ? describe(runtime, which).type : Float32

"""The whole of one part, gathered: `:value` in its type, `:master` and `:state` as Float32. Collective."""
function part(runtime::Runtime, which::Param, of=:value, index=0)
    values = Array{part_type(runtime, which, of)}(undef, describe(runtime, which).size)
    one_thread(h -> Checked.param_get(h, find(runtime, which), choice(PARTS, of, "part"), index, values), runtime)
    return values
end

"""Overwrites one part on all ranks; moments and step count stay. Collective."""
function set_part!(runtime::Runtime, which::Param, values::AbstractArray, of=:value, index=0)
    given = in_logical_order(values)
    expected, dims = part_type(runtime, which, of), describe(runtime, which).size
    eltype(given) == expected && length(given) == prod(dims) ||
        wrong("$which: $(size(given)) of $(eltype(given)), expected $dims of $expected")
    one_thread(h -> Checked.param_set(h, find(runtime, which), choice(PARTS, of, "part"), index, given), runtime)
    return nothing
end

"""(planned, current, peak) bytes of one use of host memory."""
function memory(runtime::Runtime, use=:total)
    found = Checked.memory_usage(handle(runtime), Raw.ZERO_PLACE_HOST, choice(USES, use, "use"))
    return (planned=found.planned, current=found.current, peak=found.peak)
end

"""Hands what libzero has to say to `@error`, `@warn`, `@info`, `@debug`; shard!, step! and close! do it too."""
function pump_log(runtime::Runtime)
    level, data, length_ = Ref{Int32}(0), Vector{UInt8}(undef, 4096), Ref{UInt64}(0)
    while true
        status = Raw.zero_log_read(handle(runtime), level, data, length(data), length_)
        if status == Raw.ZERO_ERR_BUFFER_TOO_SMALL && length_[] >= length(data)
            resize!(data, length_[] + 1)
            continue
        end
        status == Raw.ZERO_OK || return nothing
        text = String(data[1:length_[]])
        if level[] == Raw.ZERO_LOG_ERROR
            @error text _group = :libzero
        elseif level[] == Raw.ZERO_LOG_WARN
            @warn text _group = :libzero
        elseif level[] == Raw.ZERO_LOG_INFO
            @info text _group = :libzero
        else
            @debug text _group = :libzero
        end
    end
end
