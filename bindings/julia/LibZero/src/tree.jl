# Parameters as they come in Julia: nested NamedTuples, tuples, vectors and structs of arrays.
# SPDX-License-Identifier: BSD-3-Clause

"""`(name, array)` of every leaf in order; names are paths: "layer_1.weight"."""
function leaves(tree, path="")
    found = Tuple{String,Any}[]
    collect_leaves!(found, tree, path)
    return found
end
below(path, key) = isempty(path) ? string(key) : string(path, ".", key)
function collect_leaves!(found, tree, path)
    if tree isa AbstractArray && (eltype(tree) <: Number || eltype(tree) === BFloat16) || tree isa DevicePointer
        push!(found, (path, tree))
    elseif tree isa Tuple || tree isa AbstractVector
        foreach(i -> collect_leaves!(found, tree[i], below(path, i)), eachindex(tree))
    elseif tree isa AbstractDict
        wrong("a Dict has no order that all ranks share: use a NamedTuple")
    elseif device_pointer(tree) !== nothing
        push!(found, (path, device_pointer(tree)))
    elseif !(tree isa Union{Nothing,Number,Function,Symbol,AbstractString,Type,Module})
        foreach(name -> collect_leaves!(found, getfield(tree, name), below(path, name)), fieldnames(typeof(tree)))
    end
    return found
end

"""
    shard!(runtime, ps; frozen=())

Shards a tree of arrays (NamedTuples as Lux makes them, structs as Flux does). At stages 0 to 2 the
arrays themselves are kept up to date by `update!`; at stage 3 `update!` refreshes them, which costs the
memory that stage 3 saves: use `loan` where that matters. Initial values are made equal. Collective.
"""
function shard!(runtime::Runtime, ps; frozen=())
    whole = runtime["zero_optimization.stage"] == "3"
    model = Model()
    for (name, array) in leaves(ps)
        array isa DevicePointer || in_place(array, "the array of $name")
        add!(model, name, array; storage=whole ? :library : :caller, role=name in frozen ? :frozen : :trained)
    end
    shard!(runtime, model)
    whole && refresh!(runtime, ps)
    return runtime
end

"""Copies the parameters into the tree's arrays, one loan at a time. Collective."""
function refresh!(runtime::Runtime, ps)
    for (name, array) in leaves(ps)
        loan(whole -> copyto!(array, whole), runtime, (name,))
    end
    return ps
end

"""
    update!(runtime, ps, gs; last=true, lr=nothing)

Hands over the gradients `gs`, a tree of the shape of `ps` in which `nothing` is a gradient that did not
come, and steps; `last=false`: only ends the micro-batch. Returns what `step!` does. Collective.
"""
function update!(runtime::Runtime, ps, gs; last=true, lr=nothing)
    wanted = leaves(ps)
    given = Dict{String,Any}(leaves(gs))
    for name in keys(given)
        any(leaf -> leaf[1] == name, wanted) || wrong("a gradient for $name, which is no parameter")
    end
    micro_begin!(runtime, last)
    whole = runtime["zero_optimization.stage"] == "3"
    for (name, _) in reverse(wanted)
        haskey(given, name) && submit!(runtime, name, given[name])
        # No loan comes between: an empty hint is where all ranks agree that a bucket may be reduced.
        if whole && is_trained(runtime, name)
            grads_close!(runtime, (name,))
            prefetch!(runtime, ())
        end
    end
    micro_end!(runtime)
    last || return nothing
    info = step!(runtime; lr=lr)
    whole && refresh!(runtime, ps)
    return info
end
is_trained(runtime::Runtime, name) = describe(runtime, name).role == Raw.ZERO_PARAM_TRAINED
