#!/usr/bin/env python3
"""R132 with torch's tensors: transposed ones and channels_last weights keep their logical order, or are
refused; what comes back is in the tensor's own order.  Needs a Python with torch, as the suite torch does."""
# SPDX-License-Identifier: BSD-3-Clause
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "torch"))
import torch_help  # noqa: E402

from harness import Skip, expect, run_tests  # noqa: E402

if __name__ == "__main__" and "LIBZERO_IN_TORCH" not in os.environ:
    try:
        python, variables = torch_help.environment()
    except Skip as reason:
        print(reason)
        sys.exit(77)
    os.execve(str(python), [str(python), os.path.abspath(__file__)], dict(variables, LIBZERO_IN_TORCH="1"))

import libzero  # noqa: E402
import torch  # noqa: E402

CONFIG = {"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0.0, "zero_optimization": {"stage": 2},
          "optimizer": {"type": "SGD", "params": {"lr": 1.0}}}


def indexed(*shape):
    """The value of an element is its logical index, row by row."""
    return torch.arange(float(torch.Size(shape).numel())).reshape(shape)


def tensors():
    found = {"t": indexed(3, 4).t().contiguous().t(), "channels_last": indexed(2, 3, 4, 5).to(memory_format=torch.channels_last),
             "step": torch.stack([indexed(3, 4), indexed(3, 4)], dim=-1)[..., 0]}
    expect(not any(tensor.is_contiguous() for tensor in found.values()))
    return found


def runtime(values):
    model = libzero.Model()
    for name, tensor in values.items():
        model.add(name, tensor)
    return libzero.Runtime(CONFIG, model, comm=libzero.Comm.alone())


def test_parameters_and_gradients_keep_their_logical_order():
    with runtime(tensors()) as made:
        for name, tensor in tensors().items():
            expect((torch.from_numpy(made.get(name)) == indexed(*tensor.shape)).all(), name)
            made.submit(name, tensor)
        made.step()
        for name in tensors():
            expect((made.get(name) == 0).all(), name)  # each element met its own gradient


def test_what_comes_back_is_in_the_tensors_own_order():
    with runtime({"channels_last": indexed(2, 3, 4, 5), "t": indexed(4, 3)}) as made:
        whole = torch.full((2, 3, 4, 5), -1.0).to(memory_format=torch.channels_last)
        made.get("channels_last", out=whole)
        expect((whole == indexed(2, 3, 4, 5)).all() and not whole.is_contiguous())
        backwards = torch.full((3, 4), -1.0)
        made.get("t", out=backwards.t())
        expect((backwards == indexed(4, 3).t()).all())


def test_a_strided_tensor_cannot_be_kept_in_place():
    for name, tensor in tensors().items():
        try:
            libzero.Model().add(name, tensor, storage="caller")
        except libzero.ArgumentError as error:
            expect("strides" in str(error) and name in str(error), error)
        else:
            raise AssertionError("%s was taken" % name)


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules[__name__]))
