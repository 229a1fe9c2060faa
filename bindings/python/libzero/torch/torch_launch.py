"""Arguments, ranks and torch.distributed as DeepSpeed scripts start them."""
# SPDX-License-Identifier: BSD-3-Clause
import atexit
import datetime
import os
import tempfile
from typing import Any, Optional

import torch

from . import torch_accelerator


def add_config_arguments(parser: Any) -> Any:
    """Adds --deepspeed and --deepspeed_config to an argparse parser, and returns it."""
    group = parser.add_argument_group("DeepSpeed", "DeepSpeed configurations, which libzero.torch reads")
    group.add_argument("--deepspeed", default=False, action="store_true", help="for the script to look at; no effect here")
    group.add_argument("--deepspeed_config", default=None, type=str, help="the config's JSON file")
    group.add_argument("--deepscale", default=False, action="store_true", help="an old spelling of --deepspeed")
    group.add_argument("--deepscale_config", default=None, type=str, help="an old spelling of --deepspeed_config")
    return parser


def _forget(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:  # torch has removed it
        pass


def has_ranks() -> bool:
    return bool(os.environ.get("RANK") and os.environ.get("WORLD_SIZE"))


def init_distributed(dist_backend: Optional[str] = None, auto_mpi_discovery: bool = True, distributed_port: int = 29500,
                     verbose: bool = True, timeout: Any = None, init_method: Optional[str] = None,
                     dist_init_required: Optional[bool] = None, config: Any = None, rank: int = -1,
                     world_size: int = -1) -> None:
    """Starts torch.distributed for the script's own use, or takes it as it is; libzero's collectives are
    its own. Ranks come from torchrun or `zero run`; without either there is one."""
    dist = torch.distributed
    if not dist.is_available():
        return
    if dist.is_initialized():
        return
    assert dist_init_required is not False, (
        "init_distributed: dist_init_required is False, but torch.distributed is not initialised")
    backend = dist_backend or torch_accelerator.get_accelerator().communication_backend_name()
    options: dict = {}
    if timeout is None and os.environ.get("DEEPSPEED_TIMEOUT"):
        timeout = datetime.timedelta(minutes=int(os.environ["DEEPSPEED_TIMEOUT"]))
    if timeout is not None:
        options["timeout"] = timeout
    rank = rank if rank >= 0 else int(os.environ.get("RANK", "0"))
    world_size = world_size if world_size > 0 else int(os.environ.get("WORLD_SIZE", "1"))
    if init_method is None and not (os.environ.get("MASTER_ADDR") and os.environ.get("MASTER_PORT")):
        if world_size == 1:
            dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1, **options)
            return
        job = os.environ.get("LIBZERO_JOB")
        if not job:
            raise RuntimeError("init_distributed: WORLD_SIZE is %d, but MASTER_ADDR and MASTER_PORT are not set; start the "
                               "ranks by torchrun or `zero run`" % world_size)
        path = os.path.join(tempfile.gettempdir(), "libzero-torch-" + "".join(c if c.isalnum() else "-" for c in job))
        init_method = "file://" + path
        if rank == 0:
            atexit.register(_forget, path)
    dist.init_process_group(backend, init_method=init_method, rank=rank, world_size=world_size, **options)


def local_rank_of(args: Any) -> int:
    """LOCAL_RANK; args.local_rank must agree, and takes it where it is -1 or absent."""
    known = os.environ.get("LOCAL_RANK")
    given = getattr(args, "local_rank", None)
    if args is None or isinstance(args, dict):
        return int(known or 0)
    assert given is None or isinstance(given, int), "args.local_rank is %r: expected an int" % (given,)
    if known is None:
        return max(given or 0, 0)
    assert given is None or given < 0 or given == int(known), (
        "args.local_rank is %s, but LOCAL_RANK is %s" % (given, known))
    if given is None or given < 0:
        try:
            args.local_rank = int(known)
        except AttributeError:
            pass
    return int(known)


class _Comm:
    """deepspeed.comm: torch.distributed, and the call that starts it."""

    init_distributed = staticmethod(init_distributed)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.distributed, name)


comm = _Comm()
