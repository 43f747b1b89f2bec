"""Named random streams.

Every draw in populora comes from a generator that is named by what it is for, never from a global one:
``stream(seed, "propose", step, member)``. A name is hashed with SHA-256, so a resumed run needs no stored generator
state, and the name in a child's lineage gives the draws it was bred with.
"""

from __future__ import annotations

import hashlib
import json

import numpy as np


def stream_key(seed: int, *name: str | int) -> int:
    """128-bit integer that names a stream; equal names give equal keys on every machine and Python version."""
    digest = hashlib.sha256(json.dumps([seed, *name]).encode("ascii")).digest()
    return int.from_bytes(digest[:16], "little")


def stream(seed: int, *name: str | int) -> np.random.Generator:
    """A fresh NumPy generator for the named stream."""
    return np.random.Generator(np.random.PCG64(stream_key(seed, *name)))
