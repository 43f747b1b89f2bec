"""Products of the frozen base by either library, against float64."""

import pytest
import torch

from populora.engine.model import products
from populora.engine.model.products import MIN_ROWS, base_products, multiply, padded_rows, use_base_products


@pytest.fixture
def on_processor(monkeypatch):
    """Return a function that makes the choice for a processor of this name, on a torch with both libraries."""

    def choose(name, instructions="AVX512"):
        monkeypatch.setattr(products, "processor", lambda: name)
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: instructions)
        monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
        base_products.cache_clear()
        return base_products()

    yield choose
    base_products.cache_clear()


@pytest.mark.parametrize(
    ("name", "instructions", "words"),
    [
        ("Intel(R) Xeon(R) Processor", "AVX512", "MKL (oneDNN is for AMD's processors, this is Intel(R) Xeon(R) Processor)"),
        ("", "AVX512", "MKL (oneDNN is for AMD's processors, this is an unknown one)"),
        ("AMD EPYC", "AVX512", "oneDNN (MKL is slower on AMD's processors)"),
        ("AMD EPYC", "AVX2", "MKL (with AVX2 oneDNN is not faster)"),
    ],
)
def test_the_processor_decides_and_the_words_say_it(on_processor, name, instructions, words):
    assert on_processor(name, instructions) == words


def test_batches_of_any_number_of_rows_are_products_of_few():
    padded = {rows: padded_rows(rows) for rows in range(1, 8193)}
    assert len(set(padded.values())) <= 56, "oneDNN keeps code for each of them"
    assert all(rows <= padded[rows] < rows + max(MIN_ROWS, rows / 8) for rows in padded)


def test_a_torch_without_the_operator_is_named(on_processor, monkeypatch):
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    words = on_processor("AMD EPYC")
    assert words.startswith("MKL") and "lacks oneDNN's linear operator" in words


@pytest.mark.parametrize("rows", [1, MIN_ROWS, 77, 96])
@pytest.mark.parametrize("name", ["AMD EPYC", "Intel"])
def test_values_and_gradient_are_those_of_the_linear_module(on_processor, name, rows):
    on_processor(name)
    generator = torch.Generator().manual_seed(0)
    linear = torch.nn.Linear(24, 40).requires_grad_(False)
    x, upstream = torch.randn(1, rows, 24, generator=generator).requires_grad_(), torch.randn(1, rows, 40, generator=generator)
    exact = torch.nn.functional.linear(x.double(), linear.weight.double(), linear.bias.double())
    (exact_grad,) = torch.autograd.grad(exact, x, upstream.double())
    use_base_products(linear)
    y = linear(x)
    torch.testing.assert_close(y, exact.float(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(torch.autograd.grad(y, x, upstream)[0], exact_grad.float(), rtol=1e-5, atol=1e-6)
    with torch.no_grad():
        assert torch.equal(linear(x), y)


def test_other_precisions_and_few_rows_stay_with_torch(on_processor, monkeypatch):
    if not on_processor("AMD EPYC").startswith("oneDNN"):
        pytest.skip("this torch has no oneDNN")
    weight = torch.randn(5, 3)
    assert products.faster_products(torch.randn(MIN_ROWS, 3))
    for x in (torch.randn(MIN_ROWS - 1, 3), torch.randn(MIN_ROWS, 3).bfloat16()):
        assert not products.faster_products(x)
        assert torch.equal(multiply(x, weight.to(x.dtype)), x @ weight.to(x.dtype).T)
