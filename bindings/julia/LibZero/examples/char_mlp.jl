# A character model in plain Julia: four characters in, the next one out, at every ZeRO stage.
# SPDX-License-Identifier: BSD-3-Clause
#   zero run -n 2 -- julia --project=bindings/julia/LibZero char_mlp.jl bindings/examples/char_mlp.json TEXT
#
# Parameters and gradients are NamedTuples, as Lux makes them; `shard!` and `update!` are all that a
# loop needs. The stage is a line of the JSON file. LIBZERO_RECORD=FOLDER keeps weights and gradients.
# char_mlp_loans.jl is the same model with parameters that are whole only layer by layer.
using LibZero

const VOCABULARY, CONTEXT, EMBEDDING, HIDDEN, ROWS = 128, 4, 16, 64, 64

# The same numbers in every language; biases start at zero.
initial(number, dims) = reshape([Float32((((i * 2654435761 + number * 40503) % 2^32) / 2^32 - 0.5) * 0.5)
                                 for i in 0:prod(dims)-1], dims)
first_values() = (embed=initial(0, (EMBEDDING, VOCABULARY)), w1=initial(1, (HIDDEN, CONTEXT * EMBEDDING)),
    b1=zeros(Float32, HIDDEN), w2=initial(3, (VOCABULARY, HIDDEN)), b2=zeros(Float32, VOCABULARY))

# ROWS windows of the text, a column each: contexts and the characters after them, from 1.
function batch(text, number)
    starts = [(number * ROWS + r) * 7919 % (length(text) - CONTEXT) for r in 0:ROWS-1]
    at(s, c) = Int(text[s+c] & 127) + 1
    return [at(s, c) for c in 1:CONTEXT, s in starts], [at(s, CONTEXT + 1) for s in starts]
end

function loss_and_gradients(ps, contexts, targets)
    x = reshape(ps.embed[:, vec(contexts)], :, ROWS)
    h = tanh.(ps.w1 * x .+ ps.b1)
    logits = ps.w2 * h .+ ps.b2
    logits .-= maximum(logits; dims=1)
    p = exp.(logits)
    p ./= sum(p; dims=1)
    loss = -sum(log(p[targets[r], r]) for r in 1:ROWS) / ROWS

    for r in 1:ROWS
        p[targets[r], r] -= 1
    end
    p ./= ROWS
    d = (ps.w2' * p) .* (1 .- h .* h)
    dx = reshape(ps.w1' * d, EMBEDDING, :)
    embed = zeros(Float32, EMBEDDING, VOCABULARY)
    for (column, character) in enumerate(vec(contexts))
        embed[:, character] .+= view(dx, :, column)
    end
    return loss, (embed=embed, w1=d * x', b1=vec(sum(d; dims=2)), w2=p * h', b2=vec(sum(p; dims=2)))
end

# For the test that replays the run in C.
function record(runtime, kept, final)
    folder = get(ENV, "LIBZERO_RECORD", "")
    isempty(folder) && return
    keep(name, arrays) = open(io -> foreach(a -> write(io, a), arrays), joinpath(folder, name), "w")
    keep("gradients-$(rank(runtime)).bin", Iterators.flatten(kept))
    if rank(runtime) == 0
        keep("initial.bin", first_values())
        keep("final.bin", final)
    end
end

function report(runtime, comm, step, steps, loss, info)
    loss = all_reduce!(comm, loss) / ranks(comm)
    if rank(runtime) == 0 && (step % 20 == 0 || step == steps - 1)
        println("step ", step, " loss ", round(loss; digits=4), " norm ", round(info.grad_norm; digits=4))
    end
end

function main(config, text_file, steps=60)
    text, ps, kept = read(text_file), first_values(), []
    comm = Comm(Config(config))
    Runtime(Config(config); comm=comm) do runtime
        shard!(runtime, ps)
        for step in 0:steps-1
            loss, gs = loss_and_gradients(ps, batch(text, step * ranks(runtime) + rank(runtime))...)
            info = update!(runtime, ps, gs)
            report(runtime, comm, step, steps, loss, info)
            push!(kept, gs)
        end
        record(runtime, kept, [part(runtime, name) for name in keys(ps)])
    end
end

abspath(PROGRAM_FILE) == @__FILE__() && main(ARGS[1], ARGS[2])
