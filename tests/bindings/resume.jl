# resume.c in Julia: zero run -n N -- julia resume.jl CONFIG OUT CHECKPOINT...
# SPDX-License-Identifier: BSD-3-Clause
using LibZero

const SIZES = (embed=(16, 128), w1=(64, 64), b1=(64,), w2=(128, 64), b2=(128,))

checksum(values) = sum(UInt64(i) * reinterpret(UInt32, v) for (i, v) in enumerate(vec(values)))
gradient(number, dims) = reshape([Float32((i * 7 + number * 13) % 17 / 16 - 0.5) for i in 0:prod(dims)-1], dims)

function resume(config, path, out)
    model = Model()
    foreach(name -> add!(model, String(name), Float32, SIZES[name]), keys(SIZES))
    Runtime(Config(config), model) do runtime
        load!(runtime, path)
        out === nothing || save(runtime, out)
        say(words...) = rank(runtime) == 0 && println(words...)
        say("step ", LibZero.step_count(runtime))
        for name in keys(SIZES)
            parts = (part(runtime, name, of, index) for (of, index) in ((:value, 0), (:master, 0), (:state, 0), (:state, 1)))
            say(name, " ", join([Int128(checksum(values)) for values in parts], " "))
        end
        for (number, name) in reverse(collect(enumerate(keys(SIZES))))
            submit!(runtime, name, gradient(number - 1, SIZES[name]))
        end
        step!(runtime)
        foreach(name -> (sum = Int128(checksum(part(runtime, name))); say("then ", name, " ", sum)), keys(SIZES))
    end
end

const paths = ARGS[3:end]
foreach(path -> resume(ARGS[1], path, path == paths[end] ? ARGS[2] : nothing), paths)
