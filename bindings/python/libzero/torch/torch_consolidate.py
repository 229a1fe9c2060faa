"""Whole fp32 weights out of a checkpoint folder, offline, as scripts ask zero_to_fp32 for them; also a
command: python -m libzero.torch.torch_consolidate CHECKPOINT_DIR OUTPUT [-t TAG]."""
# SPDX-License-Identifier: BSD-3-Clause
import argparse
import json
import os
from typing import Any, Dict, Iterator, List, Optional, Tuple

import torch

from ..checkpoint import Checkpoint
from . import torch_files


def _open(checkpoint_dir: Any, tag: Any) -> Checkpoint:
    folder = torch_files.folder_of(os.fspath(checkpoint_dir), tag)
    if folder is None:
        raise ValueError("%s: there is no latest, and no tag was given; expected a folder that save_checkpoint wrote" %
                         checkpoint_dir)
    torch_files.refuse_deepspeeds_own(folder)
    return Checkpoint(folder)


def _value(opened: Checkpoint, name: str, shape: Tuple[int, ...], is_float: bool, master: bool) -> torch.Tensor:
    if is_float and master:
        try:
            return torch.from_numpy(opened.read(name, "master").copy()).view(shape)
        except Exception as error:  # frozen: it has none  # pylint: disable=broad-except
            if "master" not in str(error).lower():
                raise
    found = opened.read(name)
    if found.dtype.name == "uint16":
        return torch.from_numpy(found.copy().view("int16")).view(torch.bfloat16).float().view(shape)
    value = torch.from_numpy(found.copy()).view(shape)
    return value.float() if is_float else value


def _values(checkpoint_dir: Any, tag: Any) -> Iterator[Tuple[str, torch.Tensor]]:
    opened = _open(checkpoint_dir, tag)
    has_masters = not opened.describe().weights_only
    for name, shape, dtype in opened.params():
        yield name, _value(opened, name, shape, dtype in ("fp32", "fp16", "bf16", "fp64"), has_masters)


def get_fp32_state_dict_from_zero_checkpoint(checkpoint_dir: Any, tag: Any = None, exclude_frozen_parameters: bool = False,
                                             lazy_mode: bool = False) -> Dict[str, torch.Tensor]:
    """Every parameter and persistent buffer by name, parameters in fp32, in host memory. Not collective."""
    if exclude_frozen_parameters:
        raise NotImplementedError("exclude_frozen_parameters: a checkpoint of libzero's does not say what was frozen; expected "
                                  "engine.module_state_dict(exclude_frozen_parameters=True)")
    return dict(_values(checkpoint_dir, tag))


def _bytes(text: Any) -> int:
    if isinstance(text, int):
        return text
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3), ("GIB", 2**30), ("MIB", 2**20), ("KIB", 2**10)):
        if str(text).upper().endswith(unit):
            return int(float(str(text)[:-len(unit)]) * size)
    return int(text)


def _parts(state: Dict[str, torch.Tensor], limit: int) -> List[Dict[str, torch.Tensor]]:
    parts: List[Dict[str, torch.Tensor]] = [{}]
    size = 0
    for name, value in state.items():
        own = value.numel() * value.element_size()
        if parts[-1] and size + own > limit:
            parts.append({})
            size = 0
        parts[-1][name] = value
        size += own
    return parts


def convert_zero_checkpoint_to_fp32_state_dict(checkpoint_dir: Any, output_dir: Any, max_shard_size: Any = "5GB",
                                               safe_serialization: bool = False, tag: Any = None,
                                               exclude_frozen_parameters: bool = False) -> None:
    """Writes them: pytorch_model.bin (or model.safetensors) in output_dir, several and an index where they are
    larger than max_shard_size; output_dir that ends in .bin or .pt is one file, as older scripts want it."""
    state = get_fp32_state_dict_from_zero_checkpoint(checkpoint_dir, tag, exclude_frozen_parameters)
    target = os.fspath(output_dir)
    if target.endswith((".bin", ".pt", ".pth")):
        torch.save(state, target)
        return
    os.makedirs(target, exist_ok=True)
    stem, ending = ("model", "safetensors") if safe_serialization else ("pytorch_model", "bin")
    parts = _parts(state, _bytes(max_shard_size) if max_shard_size is not None else 2**62)
    where: Dict[str, str] = {}
    for number, part in enumerate(parts):
        name = "%s.%s" % (stem, ending) if len(parts) == 1 else "%s-%05d-of-%05d.%s" % (stem, number + 1, len(parts), ending)
        where.update(dict.fromkeys(part, name))
        if safe_serialization:
            from safetensors.torch import save_file
            save_file({key: value.contiguous() for key, value in part.items()}, os.path.join(target, name),
                      metadata={"format": "pt"})
        else:
            torch.save(part, os.path.join(target, name))
    if len(parts) > 1:
        total = sum(value.numel() * value.element_size() for value in state.values())
        with open(os.path.join(target, "%s.%s.index.json" % (stem, ending)), "w", encoding="utf-8") as file:
            json.dump({"metadata": {"total_size": total}, "weight_map": where}, file, indent=2)


def convert_zero_checkpoint_to_state_dict(checkpoint_dir: Any, output_dir: Any, dtype: Any = torch.float32,
                                          **options: Any) -> None:
    if dtype != torch.float32:
        raise NotImplementedError("convert_zero_checkpoint_to_state_dict: dtype %s is not in libzero.torch; expected torch.float32,"
                                  " or `zero checkpoint export`" % dtype)
    convert_zero_checkpoint_to_fp32_state_dict(checkpoint_dir, output_dir, **options)


def load_state_dict_from_zero_checkpoint(model: torch.nn.Module, checkpoint_dir: Any, tag: Any = None) -> torch.nn.Module:
    """The model, on the CPU, with the checkpoint's values."""
    model = model.cpu()
    model.load_state_dict(get_fp32_state_dict_from_zero_checkpoint(checkpoint_dir, tag), strict=False)
    return model


NAMES = ("get_fp32_state_dict_from_zero_checkpoint convert_zero_checkpoint_to_fp32_state_dict "
         "convert_zero_checkpoint_to_state_dict load_state_dict_from_zero_checkpoint main")


def main(words: Optional[List[str]] = None) -> None:
    parser = argparse.ArgumentParser(prog="zero_to_fp32.py", description="Whole fp32 weights out of a checkpoint folder.")
    parser.add_argument("checkpoint_dir", help="the folder that holds the tags, as given to save_checkpoint")
    parser.add_argument("output_dir", help="a folder, or a file that ends in .bin")
    parser.add_argument("--max_shard_size", default="5GB", help="the largest file, as 5GB or 200MB")
    parser.add_argument("--safe_serialization", action="store_true", help="safetensors in place of torch.save")
    parser.add_argument("-t", "--tag", default=None, help="which checkpoint; default: the one that latest names")
    parser.add_argument("--exclude_frozen_parameters", action="store_true", help="refused: frozen ones are not marked")
    parser.add_argument("-d", "--debug", action="store_true", help="no effect")
    given = parser.parse_args(words)
    convert_zero_checkpoint_to_fp32_state_dict(
        given.checkpoint_dir, given.output_dir, max_shard_size=given.max_shard_size, tag=given.tag,
        safe_serialization=given.safe_serialization, exclude_frozen_parameters=given.exclude_frozen_parameters)


if __name__ == "__main__":
    main()
