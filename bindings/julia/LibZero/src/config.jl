# Configurations, models and plans.
# SPDX-License-Identifier: BSD-3-Clause

"""
    Config(path)
    Config(text="{...}")
    Config()

A DeepSpeed configuration from a file, from JSON text, or all defaults. `config["key"]` is the
effective value as text, `config["key"] = value` sets it; keys are dotted paths.
"""
mutable struct Config <: Owned
    life::Union{Life,Nothing}
    Config(handle::Ptr) = new(Life(handle, h -> Raw.zero_config_destroy(h)))
end
Config(; text=nothing) = Config(text === nothing ? Checked.config_create() : Checked.config_load_text(text))
Config(path::AbstractString) = Config(Checked.config_load_file(path))

handle(config::Config) = pointer_of(config, Raw.zero_config)
Base.getindex(config::Config, key::AbstractString) = Checked.config_get(handle(config), key)
Base.setindex!(config::Config, value, key::AbstractString) = Checked.config_set(handle(config), key, string(value))

"""Where a value comes from: "file", "set", "facts", "derived" or "default"."""
origin(config::Config, key) = Checked.config_origin(handle(config), key)

"""Every check that needs no communicator and no device; throws the first error."""
check_config(config::Config) = Checked.config_check(handle(config))

"""All findings of the last check: `(is_error, line, column, key, message, suggestion)` each."""
function findings(config::Config)
    all = [Checked.config_diagnostic_at(handle(config), i) for i in 0:Checked.config_diagnostic_count(handle(config))-1]
    return [(is_error=d.is_error != 0, line=d.line, column=d.column, key=static_text(d.key),
             message=static_text(d.message), suggestion=static_text(d.suggestion)) for d in all]
end

"""Fills every "auto" that the facts determine: `world_size`, `micro_batch_size`, `hidden_size`, ..."""
fill_auto!(config::Config; facts...) =
    Checked.config_fill_auto(handle(config), with(initial(Raw.zero_config_facts); facts...))

"""The whole, defaults filled in, as JSON."""
config_text(config::Config) = Checked.config_text(handle(config))

# ---- models --------------------------------------------------------------------------------------

const ROLES = Dict(:trained => Raw.ZERO_PARAM_TRAINED, :frozen => Raw.ZERO_PARAM_FROZEN, :buffer => Raw.ZERO_PARAM_BUFFER)
const STORAGES = Dict(:library => Raw.ZERO_STORAGE_LIBRARY, :caller => Raw.ZERO_STORAGE_CALLER)
choice(table, name, what) =
    get(() -> wrong("$what $(repr(name)) is none of $(join(sort!(collect(keys(table))), ", "))"), table, name)

"""Parameters by name, in order of registration; ids count from 0."""
mutable struct Model <: Owned
    life::Union{Life,Nothing}
    Model(handle::Ptr) = new(Life(handle, h -> Raw.zero_model_destroy(h)))
end
Model() = Model(Checked.model_create())
"""Names, shapes and dtypes from a TSV list, a safetensors file, an index or a folder."""
Model(path::AbstractString) = Model(Checked.model_load(path))
handle(model::Model) = pointer_of(model, Raw.zero_model)

"""A new group: `frozen`, `lr`, `lr_scale`, `weight_decay`, `beta1`, `beta2`, `epsilon`, `momentum`."""
group!(model::Model, name; values...) =
    Checked.group_add(handle(model), name, with(initial(Raw.zero_group_options); values...))

"""
    add!(model, name, array; storage=:library, group=0, role=:trained, tied_to=-1, unit=-1)

Registers a parameter and returns its id. With `storage=:library` the values are read once, by
`shard!`; with `:caller` (stages 0 to 2) the array itself is kept up to date.
"""
function add!(model::Model, name, array; storage=:library, group=0, role=:trained, tied_to=-1, unit=-1)
    given = array isa DevicePointer ? array :
        storage == :caller ? in_place(array, "the array of $name") : in_logical_order(array)
    push!(life_of(model).keeps, given)
    buffer = buffer_of(given)
    options = with(initial(Raw.zero_param_options); dtype=buffer.dtype, group=group, role=choice(ROLES, role, "role"),
                   storage=choice(STORAGES, storage, "storage"), tied_to=tied_to, unit=unit, place=buffer.place,
                   device=buffer.device, data=buffer.count == 0 ? C_NULL : buffer.data)
    shape = shape_of(given)
    return Checked.param_add(handle(model), string(name), shape, options)
end

"""Zeros of a size: `add!(model, "b", Float32, (4,))`."""
function add!(model::Model, name, ::Type{T}, dims::Tuple; group=0, role=:trained, tied_to=-1, unit=-1) where {T}
    options = with(initial(Raw.zero_param_options); dtype=dtype_of(T), group=group, role=choice(ROLES, role, "role"),
                   tied_to=tied_to, unit=unit)
    return Checked.param_add(handle(model), string(name), Int64[reverse(dims)...], options)
end

"""The order in which gradients are finished, where it is not the reverse of the registration."""
backward_order!(model::Model, ids) = Checked.model_backward_order(handle(model), collect(Int32, ids))

const USES = Dict(:total => Raw.ZERO_MEMORY_TOTAL, :params => Raw.ZERO_MEMORY_PARAMS, :grads => Raw.ZERO_MEMORY_GRADS,
    :master => Raw.ZERO_MEMORY_MASTER, :optimizer => Raw.ZERO_MEMORY_OPTIMIZER, :gathered => Raw.ZERO_MEMORY_GATHERED,
    :buckets => Raw.ZERO_MEMORY_BUCKETS, :staging => Raw.ZERO_MEMORY_STAGING, :tables => Raw.ZERO_MEMORY_TABLES)

"""What every rank would hold; needs no device and no other rank."""
mutable struct Plan <: Owned
    life::Union{Life,Nothing}
end
function Plan(config::Config, model::Model, world_size::Integer)
    options = with(initial(Raw.zero_plan_options); world_size=world_size)
    return Plan(Life(Checked.plan_create(handle(config), handle(model), options), h -> Raw.zero_plan_destroy(h)))
end
"""Bytes of one use on one rank."""
memory(plan::Plan, use=:total; rank=0) =
    Checked.plan_memory(pointer_of(plan, Raw.zero_plan), rank, Raw.ZERO_PLACE_HOST, choice(USES, use, "use"))
Base.string(plan::Plan) = Checked.plan_text(pointer_of(plan, Raw.zero_plan))
