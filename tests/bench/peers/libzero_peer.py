# libzero under the forward and backward passes of a torch model, through ctypes and <zero.h> alone:
# what train_peer.py trains in its modes libzero1, libzero2 and libzero3.
# The library is the one that LIBZERO_LIBRARY names, or else libzero.so.0.
# SPDX-License-Identifier: BSD-3-Clause
import ctypes
import json
import os

import torch

FP32, HOST, CALLER = 1, 1, 1
NO_DEVICE, NOT_TIED = -1, -1


class ParamOptions(ctypes.Structure):
    _fields_ = [('struct_size', ctypes.c_uint32), ('dtype', ctypes.c_int32),
                ('group', ctypes.c_int32), ('role', ctypes.c_int32), ('storage', ctypes.c_int32),
                ('tied_to', ctypes.c_int32), ('unit', ctypes.c_int32), ('place', ctypes.c_int32),
                ('device', ctypes.c_int32), ('reserved', ctypes.c_int32),
                ('data', ctypes.c_void_p)]


class Buffer(ctypes.Structure):
    _fields_ = [('data', ctypes.c_void_p), ('bytes', ctypes.c_uint64), ('count', ctypes.c_uint64),
                ('dtype', ctypes.c_int32), ('place', ctypes.c_int32), ('device', ctypes.c_int32),
                ('reserved', ctypes.c_int32)]


class Library:
    """Calls that raise libzero's own sentence."""

    def __init__(self):
        self.c = ctypes.CDLL(os.environ.get('LIBZERO_LIBRARY', 'libzero.so.0'))

    def __getattr__(self, name):
        def call(*arguments):
            status = getattr(self.c, name)(*arguments)
            if status != 0:
                text = ctypes.create_string_buffer(8192)
                length = ctypes.c_uint64()
                self.c.zero_last_error_text(text, ctypes.c_uint64(8192), ctypes.byref(length))
                raise RuntimeError(f'{name}: {text.value.decode()}')
        return call


class Tap(torch.autograd.Function):
    """The tied embedding's values; its gradient, of which each use makes a part, goes to the engine
    part by part instead of being kept until the last."""

    @staticmethod
    def forward(ctx, weight, engine):
        ctx.weight, ctx.engine = weight, engine
        return weight.detach()

    @staticmethod
    def backward(ctx, gradient):
        ctx.engine.add_part(ctx.weight, gradient)
        return None, None


class Engine:
    """Stages 1 and 2 keep the parameters where torch has them; at stage 3 they are libzero's, and
    torch's tensors point into loans: the tied embedding's for the whole step, a block's while the
    block runs forward or backward."""

    def __init__(self, model, stage, adamw, clipping):
        self.zero = Library()
        self.stage = stage
        self.units = self.units_of(model)
        sizes = [sum(parameter.numel() for _, parameter in unit) for unit in self.units]
        config, described = ctypes.c_void_p(), ctypes.c_void_p()
        text = json.dumps({
            'train_micro_batch_size_per_gpu': 1, 'gradient_clipping': clipping,
            'zero_optimization': {'stage': stage, 'overlap_comm': False,
                                  'stage3_prefetch_bucket_size': 0,
                                  'stage3_param_persistence_threshold': 0},
            'optimizer': {'type': 'AdamW', 'params': dict(adamw, betas=list(adamw['betas']))},
            # A block's loan may begin while the last gradients of the one above are handed over.
            'libzero': {'live_parameters': sizes[0] + 2 * max(sizes[1:]) + (1 << 16),
                        'open_buckets': 2},
        }).encode()
        self.zero.zero_config_load_text(text, ctypes.c_uint64(len(text)), ctypes.byref(config))
        self.runtime = ctypes.c_void_p()
        self.zero.zero_init(config, None, ctypes.byref(self.runtime))
        self.zero.c.zero_config_destroy(config)
        self.zero.zero_model_create(ctypes.byref(described))
        self.ids = {}
        for number, unit in enumerate(self.units):
            for name, parameter in unit:
                self.register(described, name, parameter, number)
        self.zero.zero_shard_params(self.runtime, described)
        self.zero.c.zero_model_destroy(described)
        for parameter in self.ids:
            parameter.register_post_accumulate_grad_hook(self.hand_over)
        self.opened = None  # where the tied embedding's gradient is being added up
        tied = model.lm_head.weight
        model.lm_head.forward = lambda x: torch.nn.functional.linear(x, Tap.apply(tied, self))
        model.transformer.wte.forward = (
            lambda ids: torch.nn.functional.embedding(ids, Tap.apply(tied, self)))
        if stage == 3:
            self.shapes = {parameter: parameter.shape for parameter in self.ids}
            self.lend_blocks(model)

    @staticmethod
    def units_of(model):
        """Embeddings and the last norm, which are needed at both ends, then the blocks."""
        blocks = {id(parameter) for block in model.transformer.h
                  for parameter in block.parameters()}
        ends = [(name, parameter) for name, parameter in model.named_parameters()
                if id(parameter) not in blocks]
        return [ends] + [list(block.named_parameters(f'h.{i}'))
                         for i, block in enumerate(model.transformer.h)]

    def register(self, described, name, parameter, unit):
        options = ParamOptions()
        self.zero.c.zero_param_options_init(ctypes.byref(options), ctypes.sizeof(options))
        options.dtype, options.unit = FP32, unit
        options.storage = CALLER if self.stage < 3 else 0
        options.data = parameter.data_ptr()
        shape = (ctypes.c_int64 * parameter.dim())(*parameter.shape)
        number = ctypes.c_int32()
        self.zero.zero_param_add(described, name.encode(), shape, parameter.dim(),
                                 ctypes.byref(options), ctypes.byref(number))
        self.ids[parameter] = number.value

    # Gradients go over as soon as autograd has them, and torch's memory is free again.
    def hand_over(self, parameter):
        if parameter.grad is None:  # the tied embedding's, which add_part has handed over
            return
        gradient = parameter.grad.contiguous()
        buffer = Buffer(gradient.data_ptr(), 4 * gradient.numel(), gradient.numel(), FP32, HOST,
                        NO_DEVICE, 0)
        self.zero.zero_grad_submit(self.runtime, self.ids[parameter], ctypes.byref(buffer), None)
        parameter.grad = None
        if self.stage == 3 and parameter in self.block_of:
            block = self.block_of[parameter]
            self.missing[block] -= 1
            if self.missing[block] == 0:
                self.give_back(block)

    def add_part(self, parameter, gradient):
        if self.opened is None:
            buffer, adds = Buffer(), ctypes.c_int32()
            self.zero.zero_grad_buffer(self.runtime, self.ids[parameter], None,
                                       ctypes.byref(buffer), ctypes.byref(adds))
            memory = (ctypes.c_float * buffer.count).from_address(buffer.data)
            self.opened = torch.frombuffer(memory, dtype=torch.float32).view(gradient.shape)
            (self.opened.add_ if adds.value else self.opened.copy_)(gradient)
            return
        self.opened.add_(gradient)  # the second and last use
        self.opened = None
        one = ctypes.c_int32(self.ids[parameter])
        self.zero.zero_grad_ready(self.runtime, ctypes.byref(one), ctypes.c_uint64(1), None)

    # ---- stage 3

    def lend_blocks(self, model):
        self.ends = [parameter for _, parameter in self.units[0]]
        self.blocks = [[parameter for _, parameter in unit] for unit in self.units[1:]]
        self.block_of = {parameter: i for i, block in enumerate(self.blocks) for parameter in block}
        self.missing = [0] * len(self.blocks)
        self.nothing = torch.empty(0)
        for parameter in self.ids:
            parameter.data = self.nothing
        for i, block in enumerate(model.transformer.h):
            block.register_forward_pre_hook(lambda *_, i=i: self.lend(self.blocks[i]))
            block.register_forward_hook(lambda *_, i=i: self.give_back(i))
            block.register_full_backward_pre_hook(lambda *_, i=i: self.lend_backward(i))

    def numbers(self, parameters):
        return (ctypes.c_int32 * len(parameters))(*[self.ids[one] for one in parameters])

    def lend(self, parameters):
        buffers = (Buffer * len(parameters))()
        self.zero.zero_params_acquire(self.runtime, self.numbers(parameters),
                                      ctypes.c_uint64(len(parameters)), None, buffers)
        for parameter, buffer in zip(parameters, buffers):
            memory = (ctypes.c_float * buffer.count).from_address(buffer.data)
            parameter.data = torch.frombuffer(memory, dtype=torch.float32).view(
                self.shapes[parameter])

    def return_loan(self, parameters):
        for parameter in parameters:
            parameter.data = self.nothing
        self.zero.zero_params_release(self.runtime, self.numbers(parameters),
                                      ctypes.c_uint64(len(parameters)), 0, None)

    def give_back(self, block):
        self.return_loan(self.blocks[block])

    def lend_backward(self, block):
        self.missing[block] = len(self.blocks[block])
        self.lend(self.blocks[block])

    # ---- a step

    def passes(self, model, batch):
        self.zero.zero_micro_begin(self.runtime, 1)
        if self.stage == 3:
            self.lend(self.ends)
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        value = loss.item()
        del loss
        if self.stage == 3:
            self.return_loan(self.ends)
        self.zero.zero_micro_end(self.runtime, None)
        return value

    def step(self):
        self.zero.zero_step(self.runtime, None, None, None)

    def close(self):
        self.zero.zero_runtime_close(self.runtime)
        self.zero.c.zero_runtime_destroy(self.runtime)
