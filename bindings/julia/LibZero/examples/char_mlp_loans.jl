# The model of char_mlp.jl where no tree of whole parameters exists: a layer is on loan while it is used,
# which is what stage 3 saves memory by. The same loop runs at every stage.
# SPDX-License-Identifier: BSD-3-Clause
#   zero run -n 2 -- julia --project=bindings/julia/LibZero char_mlp_loans.jl bindings/examples/char_mlp.json TEXT
include("char_mlp.jl")

# Forward and backward of one micro-batch; gradients are handed over as they are finished.
function train_batch(runtime, contexts, targets)
    given = Dict{Symbol,Array{Float32}}()
    give(name, gradient) = (submit!(runtime, name, gradient); given[name] = gradient)

    x = loan(embed -> reshape(embed[:, vec(contexts)], :, ROWS), runtime, (:embed,))
    h = loan((w1, b1) -> tanh.(w1 * x .+ b1), runtime, (:w1, :b1))
    p, loss, d = loan(runtime, (:w2, :b2)) do w2, b2
        p = w2 * h .+ b2
        p .-= maximum(p; dims=1)
        p .= exp.(p)
        p ./= sum(p; dims=1)
        loss = -sum(log(p[targets[r], r]) for r in 1:ROWS) / ROWS
        foreach(r -> p[targets[r], r] -= 1, 1:ROWS)
        p ./= ROWS
        return p, loss, (w2' * p) .* (1 .- h .* h)
    end
    give(:b2, vec(sum(p; dims=2)))
    give(:w2, p * h')
    dx = loan((w1,) -> reshape(w1' * d, EMBEDDING, :), runtime, (:w1,))
    give(:b1, vec(sum(d; dims=2)))
    give(:w1, d * x')
    embed = zeros(Float32, EMBEDDING, VOCABULARY)
    for (column, character) in enumerate(vec(contexts))
        embed[:, character] .+= view(dx, :, column)
    end
    give(:embed, embed)
    return loss, [given[name] for name in keys(first_values())]
end

function main_with_loans(config, text_file, steps=60)
    text, kept, model = read(text_file), [], Model()
    for (unit, (name, values)) in zip((0, 1, 1, 2, 2), pairs(first_values()))
        add!(model, String(name), values; unit=unit)
    end
    comm = Comm(Config(config))
    Runtime(Config(config), model; comm=comm) do runtime
        for step in 0:steps-1
            loss, gradients = train_batch(runtime, batch(text, step * ranks(runtime) + rank(runtime))...)
            report(runtime, comm, step, steps, loss, step!(runtime))
            push!(kept, gradients)
        end
        record(runtime, kept, [part(runtime, name) for name in keys(first_values())])
    end
end

main_with_loans(ARGS[1], ARGS[2])
