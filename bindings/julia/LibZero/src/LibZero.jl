"""
ZeRO training as an embedded runtime, for a training loop of your own.

Three floors: `LibZero.Raw` is the C interface, `LibZero.Checked` turns each status into a
`ZeroError`, and the functions exported here are the ones to use.

An array of size `(a, b, c)` is a parameter of shape `(c, b, a)`: Julia's columns are C's rows, so
nothing is moved, and a checkpoint shows the same bytes to Python, where the shape is `(c, b, a)`.
"""
module LibZero
# SPDX-License-Identifier: BSD-3-Clause

using Libdl

export Config, Model, Plan, Comm, Runtime, Checkpoint, DevicePointer, BFloat16, ZeroError
export add!, group!, backward_order!, shard!, update!, submit!, gradient!, grad_ready!, micro_begin!, micro_end!
export grads_close!, grads_clear!, loan, prefetch!, step!, step_begin!, step_end!, shard_array, param, part, set_part!
export all_reduce!, broadcast_bytes!, barrier, close!, destroy!, save, load!, find, describe, memory, rank, ranks

include("raw.jl")
include("errors.jl")
include("inits.jl")
include("checked.jl")
include("life.jl")
include("arrays.jl")
include("config.jl")
include("comm.jl")
include("runtime.jl")
include("checkpoint.jl")
include("tree.jl")
include("library.jl")

end
