"""What the tests of vLLM share: where they are skipped, and the device that the installed vLLM is built for."""

from importlib.util import find_spec

import pytest
import torch

needs_vllm = pytest.mark.skipif(not find_spec("vllm"), reason="vLLM has an environment of its own: make test-vllm, make test-gpu-vllm")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
"""Of samplers and runs. Oracles compute on the CPU."""
