# Two ranks in Julia, under `zero run`: what reaches the caller's arrays.
# SPDX-License-Identifier: BSD-3-Clause
using LibZero

comm = Comm(Config())
me = rank(comm)
mean_is_two(array) = all_reduce!(comm, array; mean=true)

plain = fill(Float32(1 + 2me), 3)
mean_is_two(plain)
plain == fill(2.0f0, 3) || error("a plain array: $plain")

whole = zeros(Float32, 4, 4)
part_of = view(whole, 1:2:4, 2)
part_of .= 1 + 2me
mean_is_two(part_of)
whole[1:2:4, 2] == [2, 2] && sum(whole) == 4 || error("a view: $whole")

flat = fill(Float32(1 + 2me), 6)
mean_is_two(reshape(flat, 2, 3))
flat == fill(2.0f0, 6) || error("a reshaped array: $flat")
mean_is_two(view(flat, 1:3)')

try
    mean_is_two(range(1.0, 2.0; length=3))
    error("a range was written")
catch refused
    refused isa ZeroError || rethrow()
end

# Gradients of 1 and 3 are 2 on both; state is readable from each.
function steps(stage)
    runtime = Runtime(Config(text="""{"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0.0,
        "zero_optimization": {"stage": $stage}, "optimizer": {"type": "AdamW", "params": {"lr": 0.1, "weight_decay": 0}}}"""); comm=comm)
    ps = (w=ones(Float32, 5, 7), b=ones(Float32, 3))
    shard!(runtime, ps)
    for _ in 1:2
        update!(runtime, ps, (w=fill(Float32(1 + 2me), 5, 7), b=fill(Float32(1 + 2me), 3)'))
    end
    found = [part(runtime, "w"), part(runtime, "w", :master), part(runtime, "w", :state, 0), part(runtime, "w", :state, 1), ps.w]
    close!(runtime)
    return found
end
found = steps.(0:3)
for f in found
    f == found[1] && f[1] == f[2] == f[5] || error("stages differ")
    all(abs.(f[3] .- 0.38) .< 1e-6) && all(abs.(f[4] .- 0.007996) .< 1e-7) || error("moments: $(f[3][1]) $(f[4][1])")
end
close = barrier(comm)
println("rank $me is right")
