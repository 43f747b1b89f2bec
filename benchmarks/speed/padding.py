"""Sequences of different lengths as one rectangle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch.nn.utils.rnn import pad_sequence


def padded(sequences: Sequence[Sequence[float]], filling: float, side: Literal["left", "right"] = "right") -> torch.Tensor:
    return pad_sequence([torch.tensor(own) for own in sequences], batch_first=True, padding_value=filling, padding_side=side)
