"""What the tests of compiled attention share."""

import pytest
import torch


class Compilations:
    """A backend of torch.compile that counts how often it is asked; what it gives runs without a kernel."""

    def __init__(self):
        self.count = 0

    def __call__(self, module, inputs):
        self.count += 1
        return torch._dynamo.lookup_backend("aot_eager")(module, inputs)


@pytest.fixture
def compilations():
    torch._dynamo.reset()
    return Compilations()
