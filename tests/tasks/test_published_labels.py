"""CRUXEval's own inputs and outputs, graded by this verifier: the labels are published, and the neighbour's answers are mostly wrong."""

import json
import os
from pathlib import Path

import pytest

from populora.sandbox.pool import SandboxPool
from populora.sandbox.protocol import PROFILES
from populora.tasks.checks import check_answer, check_input

DATA = os.environ.get("POPULORA_BENCHMARK_DATA")
pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(DATA is None, reason="POPULORA_BENCHMARK_DATA names no folder with cruxeval.jsonl"),
]


@pytest.fixture(scope="module")
def rows():
    lines = (Path(DATA or "") / "cruxeval.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def pool():
    with SandboxPool(PROFILES["evaluation"], workers=2, allow_weak=True) as started:
        yield started


def test_all_gold_inputs_and_outputs_are_correct(pool, rows):
    assert len(rows) == 800
    wrong = [row["id"] for row in rows if not check_input(pool, row["code"], row["input"], row["output"], twice=False).correct]
    assert wrong == []
    assert [row["id"] for row in rows if not check_answer(pool, row["output"], row["output"]).correct] == []


def test_a_neighbours_answer_is_accepted_only_where_it_is_right(pool, rows):
    """18 inputs lead to the same output; 3 outputs are the same literal and 5 are True or False against 1 or 0."""
    neighbours = list(zip(rows, [*rows[1:], rows[0]], strict=True))
    inputs = [row["id"] for row, other in neighbours if check_input(pool, row["code"], other["input"], row["output"], twice=False).correct]
    outputs = [row["id"] for row, other in neighbours if check_answer(pool, other["output"], row["output"]).correct]
    assert (len(inputs), len(outputs)) == (18, 8)
    assert {f"sample_{number}" for number in (56, 97, 370, 406, 782)} < set(outputs)
