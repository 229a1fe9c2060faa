# What a call of LibZero.Raw takes.
# SPDX-License-Identifier: BSD-3-Clause
using LibZero
using LibZero: Raw

const ROUNDS, CALLS = 21, 200000

# As C's loop does: the result is kept in memory that the compiler must write.
macro timed(name, call)
    quote
        times = Float64[]
        kept = Ref{Int64}(0)
        for _ in 1:$ROUNDS
            from = time_ns()
            for i in 1:$CALLS
                kept[] = $(esc(call))
            end
            push!(times, (time_ns() - from) / $CALLS)
        end
        println($name, " ", round(sort!(times)[$ROUNDS÷2+1]; digits=2))
    end
end

function main(runtime, comm)
    id, buffer, name = Ref{Int32}(0), Ref(LibZero.cleared(Raw.zero_buffer)), "w"
    @timed "version_number" Raw.zero_version_number()
    @timed "comm_rank" Raw.zero_comm_rank(comm)
    @timed "step_count" Raw.zero_step_count(runtime)
    @timed "loss_scale" unsafe_trunc(Int64, Raw.zero_loss_scale(runtime))
    # A C string as C and Rust have it; a String is searched for NUL at every call.
    GC.@preserve name begin
        prepared = Base.unsafe_convert(Cstring, name)
        @timed "param_find" Raw.zero_param_find(runtime, prepared, id)
    end
    @timed "param_find(String)" Raw.zero_param_find(runtime, name, id)
    @timed "param_buffer" Raw.zero_param_buffer(runtime, Int32(0), buffer)
end

model, alone = Model(), Comm()
add!(model, "w", zeros(Float32, 1000))
made = Runtime(Config(text="""{"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW"}}"""), model; comm=alone)
GC.@preserve made alone main(LibZero.handle(made), LibZero.handle(alone))
