"""Checkpoints as DeepSpeed writes them, made without torch: its zip archives, pickles and layouts.

Stands for torch with classes of the same names, so that the pickles are those that torch.save writes.
"""
# SPDX-License-Identifier: BSD-3-Clause
import collections
import io
import math
import pickle
import struct
import sys
import types
import zipfile


def _class(module, name):
    made = type(name, (), {"__module__": module})
    parent = sys.modules.setdefault(module, types.ModuleType(module))
    setattr(parent, name, made)
    return made


def _function(module, name):
    def made(*_unused):
        raise NotImplementedError
    made.__module__, made.__name__, made.__qualname__ = module, name, name
    parent = sys.modules.setdefault(module, types.ModuleType(module))
    setattr(parent, name, made)
    return made


for _name in ("torch", "torch._utils", "deepspeed", "deepspeed.runtime", "deepspeed.runtime.fp16",
              "deepspeed.runtime.zero", "deepspeed.utils"):
    sys.modules.setdefault(_name, types.ModuleType(_name))

FLOAT = _class("torch", "FloatStorage")
LONG = _class("torch", "LongStorage")
_rebuild = _function("torch._utils", "_rebuild_tensor_v2")
LossScaler = _class("deepspeed.runtime.fp16.loss_scaler", "LossScaler")
DynamicLossScaler = _class("deepspeed.runtime.fp16.loss_scaler", "DynamicLossScaler")
Fragment = _class("deepspeed.utils.tensor_fragment", "fragment_address")
_Size = _class("torch", "Size")


class Size:
    """A torch.Size."""

    def __init__(self, *extents):
        self.extents = extents

    def __reduce__(self):
        return _Size, (self.extents,)


class _Storage:
    def __init__(self, kind, values):
        self.kind, self.values = kind, values


class Tensor:
    """A contiguous tensor of its own storage, which may hold more behind it."""

    def __init__(self, values, shape=None, kind=FLOAT, spare=()):
        self.storage = _Storage(kind, list(values) + list(spare))
        self.shape = (len(values),) if shape is None else tuple(shape)

    def __reduce__(self):
        strides = [1] * len(self.shape)
        for i in range(len(self.shape) - 2, -1, -1):
            strides[i] = strides[i + 1] * max(self.shape[i + 1], 1)
        return _rebuild, (self.storage, 0, self.shape, tuple(strides), False,
                          collections.OrderedDict())


class _Pickler(pickle.Pickler):
    def __init__(self, stream):
        super().__init__(stream, protocol=2)
        self.storages = []

    def persistent_id(self, obj):
        if not isinstance(obj, _Storage):
            return None
        self.storages.append(obj)
        return ("storage", obj.kind, str(len(self.storages) - 1), "cpu", len(obj.values))


def write_archive(path, data, storages=()):
    """The zip of torch.save around the bytes of a pickle."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", data)
        archive.writestr("archive/byteorder", "little")
        for i, storage in enumerate(storages):
            code = "q" if storage.kind is LONG else "f"
            archive.writestr("archive/data/%d" % i,
                             struct.pack("<%d%s" % (len(storage.values), code), *storage.values))


def save(path, value):
    """torch.save"""
    stream = io.BytesIO()
    pickler = _Pickler(stream)
    pickler.dump(value)
    write_archive(path, stream.getvalue(), pickler.storages)


def objects(kind, **attributes):
    made = kind()
    made.__dict__.update(attributes)
    return made


def _model_state(groups, module, stage, world, extra):
    shapes = [collections.OrderedDict((name, Size(len(values))) for name, values, *_ in group)
              for group in groups]
    state = {"module": collections.OrderedDict(module), "buffer_names": [], "optimizer": None,
             "param_shapes": shapes if stage else None, "frozen_param_shapes": None,
             "shared_params": {}, "frozen_param_fragments": None, "lr_scheduler": None,
             "skipped_steps": 0, "global_steps": 6, "global_samples": 48, "dp_world_size": world,
             "ds_config": {"zero_optimization": {"stage": stage}}, "ds_version": "0.19.8"}
    state.update(extra)
    return state


def _torch_groups(count, per_group):
    numbers = iter(range(10**6))
    return [{"lr": 0.1 * (g + 1), "betas": (0.9, 0.95 + 0.01 * g), "eps": 1e-8,
             "weight_decay": 0.01 * g, "params": [next(numbers) for _ in range(per_group[g])]}
            for g in range(count)]


def write_checkpoint(folder, stage, world, groups, alignment=1, sub_group=None, with_maps=True,
                     scaler=None, extra=None, prefix="", cut=False, of_bf16_optimizer=False):
    """groups: lists of (name, master, exp_avg, exp_avg_sq), flat; the layout of stages 1 to 3.

    cut: sub-groups of exactly sub_group elements, so that they cut parameters.
    """
    tag = folder / "tag"
    tag.mkdir(parents=True)
    (folder / "latest").write_text("tag")
    extra = extra or {}
    scaler = scaler or objects(LossScaler, cur_scale=1.0, dynamic=False)
    module = [(name, Tensor([] if stage == 3 else master)) for group in groups
              for name, master, *_ in group]
    if stage == 3:
        for rank in range(world):
            save(tag / ("zero_pp_rank_%d_mp_rank_00_model_states.pt" % rank),
                 _model_state(groups, module, stage, world, extra))
    else:
        save(tag / "mp_rank_00_model_states.pt", _model_state(groups, module, stage, world, extra))
    for rank in range(world):
        if stage == 3:
            state = _partitions(rank, world, groups, stage, sub_group, scaler, cut)
        else:
            state = _flat_groups(rank, world, groups, stage, alignment, with_maps, scaler)
        if of_bf16_optimizer:  # no stage, no scaler
            for key in ("zero_stage", "loss_scaler", "dynamic_loss_scale", "overflow"):
                del state[key]
        save(tag / ("%szero_pp_rank_%d_mp_rank_00_optim_states.pt" % (prefix, rank)),
             {"optimizer_state_dict": state, "ds_config": {}, "ds_version": "0.19.8"})


def write_universal(folder, groups, stage=2, world=2, steps=None, extra=None, shapes=None,
                    scaler=None):
    """What ds_to_universal.py makes of the same; groups as for write_checkpoint.

    steps: by name, for stages 1 and 2, which have a file for each; stage 0: of BF16_Optimizer.
    """
    tag = folder / "tag_universal"
    (tag / "zero").mkdir(parents=True)
    (folder / "latest_universal").write_text("tag_universal")
    steps, shapes = steps or {}, shapes or {}
    module = [(name, Tensor([] if stage == 3 else master)) for group in groups
              for name, master, *_ in group]
    model = _model_state(groups, module, stage or 1, world, extra or {})
    if stage == 3:
        for rank in range(world):
            save(tag / ("zero_pp_rank_%d_mp_rank_00_model_states.pt" % rank), model)
    else:
        save(tag / "mp_rank_00_model_states.pt", model)
    for group in groups:
        for name, *parts in group:
            (tag / "zero" / name).mkdir()
            for part, values in zip(("fp32", "exp_avg", "exp_avg_sq"), parts):
                tensor = Tensor(values, shapes.get(name), spare=[-1.0] * 3)
                save(tag / "zero" / name / (part + ".pt"),
                     tensor if stage == 3 else {"cat_dim": 0, "param": tensor})
            if stage != 3:
                save(tag / "zero" / name / "step.pt", Tensor([steps.get(name, 6.0)], ()))
    state = {"param_groups": _torch_groups(len(groups), [1] * len(groups)), "ds_version": "0.19.8",
             "partition_count": world if stage == 3 else [world] * len(groups)}
    if stage:
        state.update({"zero_stage": stage,
                      "loss_scaler": scaler or objects(LossScaler, cur_scale=1.0, dynamic=False)})
    if stage == 3:  # rank 0's own
        state["optimizer_state_dict"] = {
            "state": {0: {"step": Tensor([5.0], ()), "exp_avg": Tensor([0.0] * 3)}},
            "param_groups": state["param_groups"]}
    else:
        state["group_paddings"] = [0] * len(groups)
    save(tag / "zero" / "optimizer_state.pt", state)
    return tag


def _flat_groups(rank, world, groups, stage, alignment, with_maps, scaler):
    masters, states, maps, paddings = [], {}, [], []
    for g, group in enumerate(groups):
        total = sum(len(master) for _, master, *_ in group)
        unit = world * alignment
        padded = (total + unit - 1) // unit * unit
        share = padded // world
        begin, end = rank * share, min((rank + 1) * share, total)
        count = max(end - begin, 0)
        paddings.append(share - count)
        flat = [[value for _, *parts in group for value in parts[k]] for k in range(3)]
        # The master's padding is cut off, that of the moments is not.
        masters.append(Tensor(flat[0][begin:begin + count], spare=[-1.0] * (share - count)))
        states[g] = {"step": Tensor([6.0], ()),
                     "exp_avg": Tensor(flat[1][begin:begin + count] + [-1.0] * (share - count)),
                     "exp_avg_sq": Tensor(flat[2][begin:begin + count] + [-1.0] * (share - count))}
        fragments, at = collections.OrderedDict(), 0
        for name, master, *_ in group:
            first, last = max(at, begin), min(at + len(master), end)
            if first < last:
                fragments[name] = objects(Fragment, numel=last - first, start=first - begin)
            at += len(master)
        maps.append(fragments)
    state = {"loss_scaler": scaler, "dynamic_loss_scale": False, "overflow": False,
             "clip_grad": 1.0, "zero_stage": stage, "group_paddings": paddings,
             "partition_count": [world] * len(groups),
             "base_optimizer_state": {"state": states,
                                      "param_groups": _torch_groups(len(groups), [1] * len(groups))},
             "single_partition_of_fp32_groups": masters}
    if with_maps:
        state["param_slice_mappings"] = maps
    return state


def _partitions(rank, world, groups, stage, sub_group, scaler, cut):
    flats, owners = [], []  # of each sub-group: its three parts
    for g, group in enumerate(groups):
        flats.append([[], [], []])
        owners.append(g)
        for _, *parts in group:
            share = math.ceil(len(parts[0]) / world)
            if sub_group and not cut and flats[-1][0] and len(flats[-1][0]) + share > sub_group:
                flats.append([[], [], []])
                owners.append(g)
            for k in range(3):
                mine = list(parts[k][rank * share:(rank + 1) * share])
                flats[-1][k] += mine + [-1.0] * (share - len(mine))
    if cut:
        pieces = [(g, [part[at:at + sub_group] for part in flat])
                  for g, flat in zip(owners, flats) for at in range(0, len(flat[0]), sub_group)]
        owners, flats = [g for g, _ in pieces], [flat for _, flat in pieces]
    states = {s: {"step": Tensor([6.0], ()), "exp_avg": Tensor(flat[1]),
                  "exp_avg_sq": Tensor(flat[2])} for s, flat in enumerate(flats)}
    return {"zero_stage": stage, "loss_scaler": scaler, "dynamic_loss_scale": False,
            "overflow": False, "partition_count": world,
            "optimizer_state_dict": {
                "state": states,
                "param_groups": _torch_groups(len(groups),
                                              [owners.count(g) for g in range(len(groups))])},
            "fp32_flat_groups": [Tensor(flat[0]) for flat in flats]}
