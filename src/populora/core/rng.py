"""Named random streams.

Every draw in populora comes from a generator named after its purpose, never from a global one: ``stream(seed, "propose", step, member)``.
A name is hashed with SHA-256. So a resumed run needs no stored generator state, and the name in a child's lineage reproduces its draws.
"""

import hashlib
import json

import numpy as np


def stream_key(seed: int, *name: str | int) -> int:
    """Return the 128-bit key of a stream. Equal names give equal keys on every machine and Python version."""
    digest = hashlib.sha256(json.dumps([seed, *name]).encode("ascii")).digest()
    return int.from_bytes(digest[:16], "little")


def stream(seed: int, *name: str | int) -> np.random.Generator:
    """Return a new NumPy generator for the named stream."""
    return np.random.Generator(np.random.PCG64(stream_key(seed, *name)))
