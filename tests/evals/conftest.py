"""Adapters for the tiny base, a small random base that has a chat template, and items made here."""

import json
import os
import runpy
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from experiments.tiny_base.tokenizer import build_tokenizer, vocabulary_size
from small_models import random_qwen2
from small_sources import CONFIG, make_folder, running
from tokenizers.processors import TemplateProcessing

import populora.evals
from populora.evals.benchmarks import BENCHMARKS
from populora.evals.eval_records import Item
from populora.evals.grading import settings_of
from populora.evals.models import EvalModels, find_models
from populora.sandbox.pool import SandboxPool
from populora.sandbox.protocol import Limits

CHAT = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="session")
def benchmark_data() -> Path:
    """The folder with the public test splits, which are not part of this repository."""
    folder = os.environ.get("POPULORA_BENCHMARK_DATA")
    if folder is None:
        pytest.skip("POPULORA_BENCHMARK_DATA names no folder with the benchmarks' files")
    return Path(folder)


@pytest.fixture(scope="module")
def pool_of():
    """Started pools by their limits, each once a module."""
    pools: dict[Limits, SandboxPool] = {}

    def start(name: str) -> SandboxPool:
        limits = settings_of(BENCHMARKS[name]).limits
        if limits not in pools:
            pools[limits] = SandboxPool(limits, 2, allow_weak=True)
        return pools[limits]

    yield start
    for pool in pools.values():
        pool.close()


@pytest.fixture(scope="session")
def chat_base(tmp_path_factory) -> Path:
    """A folder with a random Qwen2 and the tiny tokenizer, which here has a chat template."""
    folder = tmp_path_factory.mktemp("bases") / "chat"
    tokenizer = build_tokenizer()
    tokenizer.chat_template = CHAT
    random_qwen2(vocab_size=vocabulary_size(tokenizer), max_position_embeddings=512).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def compare() -> Callable[[str, str], str]:
    """math-verify's comparison of a gold answer and an answer, without the sandbox."""
    pytest.importorskip("math_verify", reason="needs math-verify")
    harness = runpy.run_path(str(Path(populora.evals.__file__).with_name("harness") / "mathematics_harness.py"))["f"]
    return cache(lambda gold, answer: json.loads(harness(json.dumps({"gold": gold, "answer": answer}))))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """The folder of an evaluation, empty as yet."""
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


@pytest.fixture
def begins_texts() -> Any:
    """The tiny tokenizer, which here begins every text with a token, as its chat template does, too."""
    tokenizer = build_tokenizer()
    tokenizer.bos_token = tokenizer.pad_token
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="<pad> $A", special_tokens=[("<pad>", tokenizer.bos_token_id)])
    tokenizer.chat_template = "{{ bos_token }}" + CHAT
    return tokenizer


@pytest.fixture
def make_adapter(tmp_path: Path) -> Callable[..., Path]:
    """``make_adapter(name, seed, base="tiny", rank=4, targets=ATTENTION)``: see `small_sources.make_folder`."""

    def make(name: str, seed: int, base: str = "tiny", folder: Path = tmp_path, **shape: Any) -> Path:
        return make_folder(folder / name, seed, base, **shape)

    return make


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    """A run after step 2, which goes on."""
    with running(tmp_path / "run", CONFIG, 2) as folder:
        yield folder


@pytest.fixture
def models_of() -> Callable[..., EvalModels]:
    """As `find_models`, with short responses."""

    def find(*whats: Path | str, response: int = 24, **how: str) -> EvalModels:
        models = find_models([str(what) for what in whats], **how)
        return replace(
            models, config=replace(models.config, threads=1, selfplay=replace(models.config.selfplay, max_response_tokens=response))
        )

    return find


@pytest.fixture(scope="session")
def crux() -> list[Item]:
    """Items as CRUXEval has them."""
    programs = ("def f(x):\n    return x + 2", "def f(x):\n    return [x] * 2", "def f(x):\n    y = x - 1\n    return y * 3")
    return [
        Item(f"made_{number}", {"code": program, "input": "3", "output": output, "id": f"made_{number}"})
        for number, (program, output) in enumerate(zip(programs, ("5", "[3, 3]", "6"), strict=True))
    ]


@pytest.fixture(scope="session")
def coding() -> list[Item]:
    """Items as HumanEval+ has them."""
    return [
        Item(
            f"Made/{number}",
            {"task_id": f"Made/{number}", "prompt": f'def {name}(x):\n    """Give {name} of {{x}}."""\n', "entry_point": name},
        )
        for number, name in enumerate(("double", "half"))
    ]
