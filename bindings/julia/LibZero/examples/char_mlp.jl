# A character model in plain Julia: four characters in, the next one out, at every ZeRO stage.
# SPDX-License-Identifier: BSD-3-Clause
#   zero run -n 2 -- julia --project=bindings/julia/LibZero char_mlp.jl bindings/examples/char_mlp.json TEXT
#
# Parameters and gradients are NamedTuples, as Lux makes them; `shard!` and `update!` are all that a
# loop needs. The stage is a line of the JSON file. LIBZERO_RECORD=FOLDER keeps weights and gradients.
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

function main(config, text_file, steps=60)
    text, ps, kept = read(text_file), first_values(), []
    record = get(ENV, "LIBZERO_RECORD", "")
    comm = Comm(Config(config))
    Runtime(Config(config); comm=comm) do runtime
        shard!(runtime, ps)
        for step in 0:steps-1
            loss, gs = loss_and_gradients(ps, batch(text, step * ranks(runtime) + rank(runtime))...)
            info = update!(runtime, ps, gs)
            loss = all_reduce!(comm, loss) / ranks(comm)
            push!(kept, gs)
            if rank(runtime) == 0 && (step % 20 == 0 || step == steps - 1)
                println("step ", step, " loss ", round(loss; digits=4), " norm ", round(info.grad_norm; digits=4))
            end
        end
        final = [part(runtime, name) for name in keys(ps)]
        if !isempty(record)
            open(io -> foreach(gs -> foreach(g -> write(io, g), gs), kept), joinpath(record, "gradients-$(rank(runtime)).bin"), "w")
            if rank(runtime) == 0
                open(io -> foreach(p -> write(io, p), first_values()), joinpath(record, "initial.bin"), "w")
                open(io -> foreach(p -> write(io, p), final), joinpath(record, "final.bin"), "w")
            end
        end
    end
end

main(ARGS[1], ARGS[2])
