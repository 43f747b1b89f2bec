"""What an actor that computes does first. Apart from `placement`, so that verifiers start without torch."""

import os

import torch

from populora.core.config import Config


def init_process(config: Config, gpu: str | None = None) -> None:
    """Set the threads of an actor's process, and make ``gpu`` its only GPU. Call it before torch initialises CUDA."""
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    torch.set_num_threads(config.threads or int(os.environ.get("OMP_NUM_THREADS", "1")))
