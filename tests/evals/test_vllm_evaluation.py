"""The generation half of `populora evaluate` with vLLM, beside the engine that is compared with transformers (`make test-vllm`)."""

from pathlib import Path

import pytest
from small_sources import completions, make_folder
from vllm_tests import DEVICE, needs_vllm

from populora.cli.main import main

pytestmark = needs_vllm

ITEMS = 120
HOW = ["--device", DEVICE, "--cache-mb", "64", "--max-tokens", "160"]
SAME = 0.98
"""Share of completions that are equal to the byte. Another order of sums may turn a token where two are as likely; here, none."""


@pytest.fixture(scope="module")
def generated(tmp_path_factory) -> Path:
    """The folders ``vllm`` and ``inprocess``: the bare base and two adapters of different ranks and targets on the held-out suite."""
    folder = tmp_path_factory.mktemp("evaluations")
    first, second = make_folder(folder / "one", 1), make_folder(folder / "two", 2, rank=2, targets=("q_proj", "up_proj"))
    for backend in ("vllm", "inprocess"):
        how = [*HOW, "--backend", backend, "--limit", str(ITEMS), "-o", str(folder / backend)]
        assert main(["evaluate", "generate", "tiny", str(first), str(second), *how]) == 0
    return folder


def test_greedy_completions_are_those_of_the_engine_of_this_process(generated):
    same, texts = 0, {}
    for source in ("base", "one", "two"):
        ours, theirs = completions(generated / "inprocess", "tiny", source), completions(generated / "vllm", "tiny", source)
        assert [line["item_id"] for line in ours] == [line["item_id"] for line in theirs] and len(ours) == ITEMS
        assert [line["prompt_tokens"] for line in ours] == [line["prompt_tokens"] for line in theirs]
        same += sum(line == other for line, other in zip(ours, theirs, strict=True))
        texts[source] = [line["completion"] for line in theirs]
    print(f"{same} of {3 * ITEMS} completions are equal")
    assert same >= SAME * 3 * ITEMS
    assert texts["base"] != texts["one"] != texts["two"] != texts["base"]  # each under its own adapter


def test_merged_adapters_say_there_what_served_ones_say(generated):
    how = [*HOW, "--merge", "--backend", "vllm", "--limit", "30", "-o", str(generated / "merged")]
    assert main(["evaluate", "generate", str(generated / "one"), *how]) == 0
    served = completions(generated / "vllm", "tiny", "one")[:30]
    assert sum(line == other for line, other in zip(completions(generated / "merged", "tiny", "one"), served, strict=True)) >= SAME * 30
