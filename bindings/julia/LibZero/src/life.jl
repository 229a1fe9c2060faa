# A handle's life: destroyed when nothing needs it any more; a finalizer never communicates.
# SPDX-License-Identifier: BSD-3-Clause

"""Owns a handle; `keeps` is what must stay alive with it, `shown` counts arrays over its memory."""
mutable struct Life
    handle::Ptr{Cvoid}
    destroy::Function
    keeps::Vector{Any}
    shown::Threads.Atomic{Int}

    function Life(handle, destroy, keeps...)
        life = new(Ptr{Cvoid}(handle), destroy, Any[keeps...], Threads.Atomic{Int}(0))
        finalizer(end_life, life)
        return life
    end
end

function end_life(life::Life)
    life.handle == C_NULL && return
    if life.shown[] > 0  # an array still shows its memory: not yet
        finalizer(end_life, life)
        return
    end
    handle, life.handle = life.handle, C_NULL
    life.destroy(handle)
    empty!(life.keeps)
    return
end

"""Something with a handle that can be closed; used after that it throws."""
abstract type Owned end

function life_of(owned::Owned)
    life = owned.life
    (life === nothing || life.handle == C_NULL) && wrong_state("this $(lowercase(string(nameof(typeof(owned))))) is closed")
    return life::Life
end
pointer_of(owned::Owned, ::Type{T}) where {T} = Ptr{T}(life_of(owned).handle)

"""
    destroy!(owned)

Lets go of it, without a word to other ranks. Memory that arrays still show stays until they are gone.
"""
function destroy!(owned::Owned)
    life = owned.life
    owned.life = nothing
    life !== nothing && life.shown[] == 0 && finalize(life)
    return nothing
end

Base.isopen(owned::Owned) = owned.life !== nothing && owned.life.handle != C_NULL
