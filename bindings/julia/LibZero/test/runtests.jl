# The package's tests; each prints a line that tests/run.py counts.
# SPDX-License-Identifier: BSD-3-Clause
using LibZero
using Test
using LibZero: Raw, Checked

const failed = Ref(0)
const only_name = get(ENV, "LIBZERO_TEST_NAME", "")

function run_test(work, name)
    isempty(only_name) || name == only_name || return
    println("[ RUN      ] ", name)
    try
        work()
        println("[       OK ] ", name)
    catch error
        showerror(stdout, error, catch_backtrace())
        println("\n[  FAILED  ] ", name)
        failed[] += 1
    end
    flush(stdout)
end

expect(condition, facts...) = condition || error(join(map(repr, facts), "\n"))

"""The ZeroError that a call throws."""
function thrown(call)
    try
        call()
    catch error
        error isa ZeroError || rethrow()
        return error
    end
    error("nothing was thrown")
end

config(stage, optimizer="AdamW"; more="") = Config(text="""{"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0.0,
    "zero_optimization": {"stage": $stage}, $more
    "optimizer": {"type": "$optimizer", "params": {"lr": 0.1$(optimizer == "AdamW" ? ", \"weight_decay\": 0" : "")}}}""")

function alone(settings, arrays::Pair...; keywords...)
    model = Model()
    for (name, values) in arrays
        add!(model, name, values; keywords...)
    end
    return Runtime(settings, model; comm=Comm())
end

# ---- floors ------------------------------------------------------------------------------------------

run_test("the_raw_floor_returns_statuses_and_the_checked_floor_throws") do
    expect(unsafe_string(Raw.zero_version_string()) == LibZero.version())
    handle = Ref{Ptr{Raw.zero_config}}(C_NULL)
    expect(Raw.zero_config_load_file("/no/such/file", handle) == Raw.ZERO_ERR_NOT_FOUND)
    error = thrown(() -> Checked.config_load_file("/no/such/file"))
    expect(LibZero.family(error) == :call && occursin("/no/such/file", error.message), error)
    expect(occursin("ZERO_ERR_NOT_FOUND", sprint(showerror, error)))
    expect(LibZero.family(12345) == :unknown)
end

run_test("a_config_is_read_set_and_explained") do
    made = config(2)
    expect(made["zero_optimization.stage"] == "2" && LibZero.origin(made, "zero_optimization.stage") == "file")
    made["optimizer.params.lr"] = 0.25
    expect(parse(Float64, made["optimizer.params.lr"]) == 0.25)
    expect(LibZero.family(thrown(() -> (made["zero_optimisation.stage"] = 1))) == :config)
    wrong = Config(text="""{"train_batch_size": 1, "zero_optimization": {"stage": 9}}""")
    thrown(() -> LibZero.check_config(wrong))
    expect(any(d -> d.is_error && !isempty(d.message), LibZero.findings(wrong)))
    auto = Config(text="""{"train_micro_batch_size_per_gpu": "auto"}""")
    LibZero.fill_auto!(auto; micro_batch_size=3)
    expect(auto["train_micro_batch_size_per_gpu"] == "3")
end

# ---- arrays -------------------------------------------------------------------------------------------

run_test("columns_stay_columns_and_the_shape_is_reversed") do
    values = reshape(collect(Float32, 1:24), 2, 3, 4)
    runtime = alone(config(1), "w" => values)
    info = Checked.param_describe(LibZero.handle(runtime), 0)
    expect([unsafe_load(info.shape, i) for i in 1:3] == [4, 3, 2])
    expect(describe(runtime, "w").size == (2, 3, 4) && param(runtime, "w") == values && part(runtime, "w") == values)
    expect(vec(param(runtime, "w")) == 1:24)
    close!(runtime)
end

run_test("views_are_read_in_logical_order") do
    whole = reshape(collect(Float32, 1:24), 4, 6)
    for given in (whole', view(whole, 1:2:4, :), reshape(view(whole, :, 2:3), 8), PermutedDimsArray(whole, (2, 1)), whole[:, 1:0])
        runtime = alone(config(1, "SGD"), "w" => given)
        expect(part(runtime, "w") == given, typeof(given))
        submit!(runtime, "w", given)
        step!(runtime)
        expect(part(runtime, "w") ≈ 0.9f0 .* given, typeof(given))
        close!(runtime)
    end
end

run_test("the_callers_array_is_kept_up_to_date_and_a_view_is_refused") do
    values, whole = ones(Float32, 3, 4), ones(Float32, 4, 4)
    model = Model()
    add!(model, "w", values; storage=:caller)
    add!(model, "columns", view(whole, :, 2:3); storage=:caller)  # one after the other: in place
    for refused in (view(whole, 1:2, :), whole', 1:3)
        thrown(() -> add!(model, "v", refused; storage=:caller))
    end
    runtime = Runtime(config(2), model; comm=Comm())
    submit!(runtime, "w", ones(Float32, 3, 4))
    submit!(runtime, "columns", ones(Float32, 4, 2))
    step!(runtime)
    expect(values ≈ fill(0.9f0, 3, 4) && whole[:, 2:3] ≈ fill(0.9f0, 4, 2) && all(whole[:, [1, 4]] .== 1), whole)
    close!(runtime)
end

run_test("an_array_over_library_memory_outlives_the_runtime") do
    function make()
        runtime = alone(config(1), "w" => collect(Float32, 1:1000))
        array = param(runtime, "w")
        close!(runtime)
        return array
    end
    array = make()
    GC.gc()
    GC.gc()
    expect(array == 1:1000)
end

run_test("a_gradient_is_written_where_it_belongs") do
    runtime = alone(config(2, "SGD"), "w" => zeros(Float32, 2, 2))
    gradient!(runtime, "w") do array, add
        expect(!add && size(array) == (2, 2))
        array .= [1 2; 3 4]
    end
    step!(runtime)
    expect(part(runtime, "w") ≈ Float32[-0.1 -0.2; -0.3 -0.4])
    close!(runtime)
end

run_test("a_device_pointer_is_device_memory_with_its_stream") do
    there = DevicePointer{Float32}(Ptr{Cvoid}(0x7f0000000000), (2, 3); device=1, stream=Ptr{Cvoid}(8))
    buffer = LibZero.buffer_of(there)
    expect((buffer.place, buffer.device, buffer.count, buffer.bytes, buffer.dtype) ==
           (Raw.ZERO_PLACE_DEVICE, 1, 6, 24, Raw.ZERO_DTYPE_FP32))
    expect(LibZero.shape_of(there) == [3, 2])
    runtime = alone(config(1), "w" => zeros(Float32, 2, 3))
    thrown(() -> submit!(runtime, "w", there))  # a host runtime
    close!(runtime)
end

# ---- state --------------------------------------------------------------------------------------------

run_test("moments_survive_a_clamped_parameter") do
    runtime = alone(config(1), "w" => fill(5.0f0, 4))
    for _ in 1:2
        submit!(runtime, "w", fill(0.5f0, 4))
        step!(runtime)
        set_part!(runtime, "w", clamp.(part(runtime, "w"), -1, 1))
    end
    expect(LibZero.step_count(runtime) == 2)
    expect(all(abs.(part(runtime, "w", :state, 0) .- 0.095) .< 1e-8) && all(abs.(part(runtime, "w", :state, 1) .- 0.00049975) .< 1e-10))
    expect(part(runtime, "w", :master) == part(runtime, "w"))
    close!(runtime)
end

run_test("loans_are_blocks_that_end_with_an_exception_too") do
    runtime = alone(config(3), "w" => reshape(collect(Float32, 1:6), 2, 3), "b" => zeros(Float32, 3))
    loan(runtime, ("w", "b"); keep=true) do w, b
        expect(size(w) == (2, 3) && size(b) == (3,))
        w .= 7
    end
    expect(all(part(runtime, "w") .== 7))
    try
        loan(_ -> error("in the middle"), runtime, ("w",); keep=true)
    catch thrown_there
        expect(thrown_there isa ErrorException)
    end
    expect(occursin("0 loans", string(runtime)), string(runtime))
    close!(runtime)
end

run_test("trees_of_arrays_are_sharded_and_updated") do
    struct_like = (dense=(weight=ones(Float32, 3, 2), bias=zeros(Float32, 3), act=tanh), list=(ones(Float32, 2), [fill(2.0f0, 2)]))
    gs = (dense=(weight=ones(Float32, 3, 2), bias=nothing), list=(ones(Float32, 2), [ones(Float32, 2)]))
    found = map(0:3) do stage
        ps = deepcopy(struct_like)
        Runtime(config(stage); comm=Comm()) do runtime
            shard!(runtime, ps)
            update!(runtime, ps, gs; last=false)
            info = update!(runtime, ps, gs)
            expect(info.step == 1 && info.grad_norm ≈ sqrt(10), info.grad_norm)
        end
        ps
    end
    expect(all(==(found[1].dense.weight), map(p -> p.dense.weight, found)) && found[1].dense.weight ≈ fill(0.9f0, 3, 2))
    expect(all(p -> all(p.dense.bias .== 0) && p.list[2][1] ≈ [1.9f0, 1.9f0], found))
    Runtime(config(1); comm=Comm()) do runtime
        thrown(() -> shard!(runtime, (w=ones(Float32, 2, 2)',)))
        thrown(() -> shard!(runtime, Dict("w" => ones(Float32, 2))))
        shard!(runtime, (w=ones(Float32, 2),))
        thrown(() -> update!(runtime, (w=ones(Float32, 2),), (v=ones(Float32, 2),)))
    end
end

run_test("a_tree_of_many_arrays_is_updated_at_every_stage") do
    found = map(0:3) do stage
        ps = (layers=Tuple((weight=fill(Float32(i), 4, 3), bias=zeros(Float32, 4)) for i in 1:6), scale=ones(Float32, 2))
        gs = (layers=Tuple((weight=ones(Float32, 4, 3), bias=i == 3 ? nothing : ones(Float32, 4)) for i in 1:6), scale=nothing)
        Runtime(config(stage); comm=Comm()) do runtime
            shard!(runtime, ps; frozen=("layers.2.bias", "scale"))
            thrown(() -> update!(runtime, ps, gs))  # a gradient of a frozen one
            LibZero.grads_clear!(runtime)
        end
        ps = deepcopy(ps)
        Runtime(config(stage); comm=Comm()) do runtime
            shard!(runtime, ps; frozen=("scale",))
            foreach(_ -> update!(runtime, ps, gs), 1:2)
        end
        ps
    end
    expect(all(==(found[1]), found) && found[1].layers[6].weight ≈ fill(5.8f0, 4, 3) && all(found[1].layers[3].bias .== 0))
end

# ---- misuse -------------------------------------------------------------------------------------------

run_test("a_wrong_dtype_is_an_error") do
    runtime = alone(config(1), "w" => zeros(Float32, 2, 3))
    for wrong in (zeros(Float64, 2, 3), zeros(Int32, 2, 3), zeros(Complex{Float32}, 2, 3), "text", nothing)
        expect(LibZero.family(thrown(() -> submit!(runtime, "w", wrong))) == :call, wrong)
    end
    thrown(() -> set_part!(runtime, "w", zeros(Float64, 2, 3)))
    thrown(() -> part(runtime, "w", :nothing))
    thrown(() -> add!(Model(), "w", ["text"]))
    submit!(runtime, "w", zeros(Float32, 2, 3))
    expect(step!(runtime).step == 1)
    close!(runtime)
end

run_test("a_wrong_size_is_an_error") do
    runtime = alone(config(1), "w" => zeros(Float32, 2, 3))
    thrown(() -> submit!(runtime, "w", zeros(Float32, 3, 3)))
    thrown(() -> submit!(runtime, "no such", zeros(Float32, 2, 3)))
    thrown(() -> submit!(runtime, 7, zeros(Float32, 2, 3)))
    thrown(() -> set_part!(runtime, "w", zeros(Float32, 5)))
    submit!(runtime, "w", zeros(Float32, 2, 3))
    expect(step!(runtime).step == 1)
    close!(runtime)
end

run_test("a_read_only_array_is_an_error_where_it_would_be_written") do
    thrown(() -> all_reduce!(Comm(), 1.0:3.0))
    thrown(() -> add!(Model(), "w", 1.0f0:3.0f0; storage=:caller))
end

run_test("a_freed_handle_is_an_error") do
    runtime, comm, made = alone(config(1), "w" => zeros(Float32, 2)), Comm(), config(1)
    close!(runtime)
    close!(runtime)
    for call in (() -> step!(runtime), () -> param(runtime, 0), () -> string(runtime), () -> submit!(runtime, 0, zeros(Float32, 2)))
        expect(occursin("closed", thrown(call).message))
    end
    destroy!(comm)
    thrown(() -> rank(comm))
    destroy!(made)
    thrown(() -> Runtime(made))
end

run_test("an_exception_in_a_callback_is_the_cause_of_the_error") do
    broken(send, recv) = throw(KeyError("the cable"))
    error = thrown(() -> barrier(Comm(0, 2, broken, broken)))
    expect(LibZero.family(error) == :user && error.cause == KeyError("the cable"), error)
    error = thrown(() -> all_reduce!(Comm(0, 2, broken, broken), [1.0]))
    expect(occursin("the cable", error.message), error)
end

run_test("a_runtime_used_by_two_threads_is_an_error") do
    runtime = alone(config(1), "w" => zeros(Float32, 2))
    runtime.busy[] = 1  # as a call in another thread does
    expect(occursin("thread", thrown(() -> step!(runtime)).message))
    runtime.busy[] = 0
    Threads.@threads for i in 1:8
        try
            part(runtime, "w")
        catch error
            error isa ZeroError || rethrow()
        end
    end
    expect(part(runtime, "w") == zeros(2))
    close!(runtime)
end

run_test("a_gradient_collected_right_after_submit_was_read") do
    runtime = alone(config(2, "SGD"), ("p$i" => zeros(Float32, 50000) for i in 0:3)...)
    for i in 0:3
        submit!(runtime, i, fill(Float32(10 * (i + 1)), 50000))
        GC.gc()
        fill(NaN32, 50000)
    end
    step!(runtime)
    expect(all(i -> all(part(runtime, i) .≈ -(i + 1)), 0:3))
    close!(runtime)
end

run_test("handles_are_collected_in_any_order") do
    for _ in 1:5
        runtime = alone(config(1), "w" => zeros(Float32, 100))
        runtime = nothing
        comm, model = Comm(), Model()
        GC.gc()
    end
end

run_test("what_libzero_has_to_say_goes_to_the_log") do
    lines = Test.TestLogger(min_level=Base.CoreLogging.Debug)
    Base.CoreLogging.with_logger(lines) do
        close!(alone(config(1), "w" => zeros(Float32, 2)))
    end
    expect(any(l -> occursin("stage 1", l.message) && l.level == Base.CoreLogging.Info, lines.logs), lines.logs)
end

run_test("the_library_is_found_by_preference") do
    text = "[Other]\nlibrary = \"/no\"\n[LibZero]\n# where\nlibrary = \"/some/libzero.so\"\n"
    expect(LibZero.preference(text) == "/some/libzero.so" && LibZero.preference("[Other]\nlibrary = \"/no\"\n") === nothing)
end

run_test("a_plan_needs_no_rank") do
    model = Model()
    foreach(i -> add!(model, "w$i", Float32, (300, 300)), 1:12)
    totals = [memory(Plan(config(stage), model, 4)) for stage in 0:1]
    expect(totals[2] < totals[1] && occursin("stage", string(Plan(config(2), model, 4))), totals)
end

exit(failed[] == 0 ? 0 : 1)
