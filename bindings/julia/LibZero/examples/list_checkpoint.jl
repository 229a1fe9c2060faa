# Prints what a checkpoint holds, with a checksum of every part: list_checkpoint.jl FOLDER
# SPDX-License-Identifier: BSD-3-Clause
using LibZero

# Sum of (position from 1) * (bits), modulo 2^64: the same in every language.
checksum(values) = sum(UInt64(i) * reinterpret(UInt32, v) for (i, v) in enumerate(vec(values)))

checkpoint = Checkpoint(ARGS[1])
LibZero.verify(checkpoint)
println("step ", describe(checkpoint).step)
for p in LibZero.params(checkpoint)
    parts = ((:value, 0), (:master, 0), (:state, 0), (:state, 1))
    println(p.name, " ", join([Int128(checksum(part(checkpoint, p.name, of, index))) for (of, index) in parts], " "))
end
