"""Loading torch for a command that takes a second or two, of which the import would be most."""

from __future__ import annotations

import gc
import sys


def load_torch() -> None:
    """Import torch without looking for garbage in what it makes, now or when Python ends: some hundred thousand objects that all stay."""
    if "torch" in sys.modules:
        return
    gc.disable()
    try:
        import torch  # noqa: F401

        gc.freeze()
    finally:
        gc.enable()
