"""CRUXEval's own inputs and outputs, graded by this verifier: the labels are published, and the neighbour's answers are mostly wrong."""

import json
import os
from pathlib import Path

import pytest

from populora.sandbox.protocol import PROFILES
from populora.tasks.checks import Verifier

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
def verifier():
    with Verifier(PROFILES["evaluation"], allow_weak=True, twice=False) as started:
        yield started


def test_all_gold_inputs_and_outputs_are_correct(verifier, rows):
    assert len(rows) == 800
    wrong = [row["id"] for row in rows if not verifier.check_input(row["code"], row["input"], row["output"]).correct]
    assert wrong == []
    assert [row["id"] for row in rows if not verifier.check_answer(row["output"], row["output"]).correct] == []


def test_a_neighbours_answer_is_accepted_only_where_it_is_right(verifier, rows):
    """18 inputs lead to the same output; 3 outputs are the same literal and 5 are True or False against 1 or 0."""
    neighbours = list(zip(rows, [*rows[1:], rows[0]], strict=True))
    inputs = [row["id"] for row, other in neighbours if verifier.check_input(row["code"], other["input"], row["output"]).correct]
    outputs = [row["id"] for row, other in neighbours if verifier.check_answer(other["output"], row["output"]).correct]
    assert (len(inputs), len(outputs)) == (18, 8)
    assert {f"sample_{number}" for number in (56, 97, 370, 406, 782)} < set(outputs)
