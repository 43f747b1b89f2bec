"""What an actor that computes does first. Apart from `placement`, so that verifiers start without torch."""

import os

import torch

from populora.core.config import Config
from populora.core.errors import ClusterError


def init_process(config: Config, gpu: str | None = None) -> None:
    """Set the threads of an actor's process, and make ``gpu`` its only GPU. Raises `ClusterError` if torch has chosen a GPU before."""
    if gpu is not None:
        if torch.cuda.is_initialized():
            raise ClusterError(f"expected a process whose torch has not looked for GPUs yet, before it gets GPU {gpu}: import less in it")
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    torch.set_num_threads(config.threads or int(os.environ.get("OMP_NUM_THREADS", "1")))
