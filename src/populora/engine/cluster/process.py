"""What every process of a run does first."""

from __future__ import annotations

import os

import torch

from populora.core.config import Config


def settle_in(config: Config, gpu: str | None = None) -> None:
    """Set threads, and see this one GPU only, if one is named. To be called before torch looks at GPUs."""
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    torch.set_num_threads(config.threads or int(os.environ.get("OMP_NUM_THREADS", "1")))
