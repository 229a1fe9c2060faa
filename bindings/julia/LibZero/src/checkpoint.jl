# Checkpoints: saved and loaded by a runtime, read by anybody.
# SPDX-License-Identifier: BSD-3-Clause

"""An opened checkpoint: no runtime, no device, any number of ranks."""
mutable struct Checkpoint <: Owned
    life::Union{Life,Nothing}
    Checkpoint(path::AbstractString) = new(Life(Checked.checkpoint_open(path), h -> Raw.zero_checkpoint_destroy(h)))
end
handle(checkpoint::Checkpoint) = pointer_of(checkpoint, Raw.zero_checkpoint)

"""Step, stage, world size, number of parameters, ..."""
describe(checkpoint::Checkpoint) = Checked.checkpoint_describe(handle(checkpoint))
Base.string(checkpoint::Checkpoint) = Checked.checkpoint_text(handle(checkpoint))
verify(checkpoint::Checkpoint) = Checked.checkpoint_verify(handle(checkpoint))

"""(name, size, type) of every parameter."""
function params(checkpoint::Checkpoint)
    infos = (Checked.checkpoint_param_at(handle(checkpoint), i) for i in 0:describe(checkpoint).param_count-1)
    return [(name=static_text(i.name), size=Tuple(Int(unsafe_load(i.shape, d)) for d in i.dimensions:-1:1),
             type=element_type(i.dtype)) for i in infos]
end

"""One part of a parameter, whole: `:value` in its type, `:master` and `:state` as Float32."""
function part(checkpoint::Checkpoint, name::AbstractString, of=:value, index=0)
    at = findfirst(p -> p.name == name, params(checkpoint))
    at === nothing && throw(ZeroError(Raw.ZERO_ERR_NOT_FOUND, "the checkpoint has no parameter $name"))
    found = params(checkpoint)[at]
    values = Array{of == :value ? found.type : Float32}(undef, found.size)
    Checked.checkpoint_read(handle(checkpoint), name, choice(PARTS, of, "part"), index, 0, length(values), values)
    return values
end

"""A blob that the program of a rank had put."""
Base.get(checkpoint::Checkpoint, of_rank::Integer, key::AbstractString) =
    Checked.checkpoint_get(handle(checkpoint), of_rank, key)

"""
    save(runtime, path; replace=false, in_background=false, weights_only=false, keep_last=0, keep_every=0, latest=nothing)

Writes a checkpoint: path is whole or absent. Collective.
"""
function save(runtime::Runtime, path; latest=nothing, options...)
    name = latest === nothing ? nothing : Base.cconvert(Cstring, String(latest))
    GC.@preserve name begin
        text = name === nothing ? C_NULL : Ptr{UInt8}(pointer(name))
        made = with(initial(Raw.zero_save_options); latest=text, options...)
        one_thread(h -> Checked.checkpoint_save(h, path, made), runtime)
    end
end

"""From a checkpoint of any world size and stage: `weights_only`, `allow_missing`, `allow_extra`. Collective."""
function load!(runtime::Runtime, checkpoint::Checkpoint; options...)
    made = with(initial(Raw.zero_load_options); options...)
    return one_thread(h -> Checked.checkpoint_load(h, handle(checkpoint), made), runtime)
end
load!(runtime::Runtime, path::AbstractString; options...) = load!(runtime, Checkpoint(path); options...)

"""The program's own state of this rank, for the next save."""
put!(runtime::Runtime, key, blob::Vector{UInt8}) = one_thread(h -> Checked.checkpoint_put(h, key, blob), runtime)

"""Whole weights as safetensors; dtype 0: each its own. Collective."""
export_weights(runtime::Runtime, path; dtype=0, max_file_bytes=0) =
    one_thread(h -> Checked.weights_export(h, path, dtype, max_file_bytes), runtime)
"""From a safetensors file, an index or a folder. Collective."""
import_weights!(runtime::Runtime, path; options...) =
    one_thread(h -> Checked.weights_import(h, path, with(initial(Raw.zero_load_options); options...)), runtime)
