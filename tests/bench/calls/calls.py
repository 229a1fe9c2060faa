"""What a call of libzero.raw takes: the loop's own time, which is 4 ns, is taken off."""
# SPDX-License-Identifier: BSD-3-Clause
import statistics
import timeit

from libzero import raw
from libzero.errors import new

ROUNDS, CALLS = 21, 100000
CONFIG = '{"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW"}}'


def made(answer):
    status, *found = answer
    assert status == 0, status
    return found[0]


def runtime():
    config, model = made(raw.zero_config_load_text(CONFIG)), made(raw.zero_model_create())
    options, init = new(raw.zero_param_options), new(raw.zero_init_options)
    options.dtype = raw.ZERO_DTYPE_FP32
    made(raw.zero_param_add(model, "w", [1000], options))
    init.comm = made(raw.zero_comm_create_self())
    found = made(raw.zero_init(config, init))
    assert raw.zero_shard_params(found, model) == 0
    return found


def time(statement, names):
    times = timeit.repeat(statement, globals=names, number=CALLS, repeat=ROUNDS)
    return statistics.median(times) / CALLS * 1e9


names = {"raw": raw, "runtime": runtime()}
names.update((name, getattr(raw, "zero_" + name))
             for name in ("version_number", "comm_rank", "step_count", "loss_scale", "param_find", "param_buffer"))
names["comm"] = raw.zero_runtime_comm(names["runtime"])
empty = time("pass", names)
for name, arguments in (("version_number", ""), ("comm_rank", "comm"), ("step_count", "runtime"),
                        ("loss_scale", "runtime"), ("param_find", "runtime, 'w'"), ("param_buffer", "runtime, 0")):
    print(name, "%.2f" % (time("%s(%s)" % (name, arguments), names) - empty))
