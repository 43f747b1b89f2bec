"""Means over groups of rows, against means of the rows that a filter leaves."""

from functools import reduce
from operator import add
from statistics import fmean

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from populora.core.types import task_types
from populora.runs.groups import Groups, floats, pairs_of

TASKS = task_types(["python", "sql"])
ROW = st.tuples(
    st.sampled_from(["S0", "S1", "S10"]), st.sampled_from(TASKS), st.integers(0, 3), st.booleans(), st.floats(-5.0, 5.0, allow_nan=False)
)


def table_of(members, tasks, tokens) -> pa.Table:
    columns = (pa.array(members, pa.string()), pa.array(tasks, pa.string()), pa.array(tokens, pa.int32()))
    return pa.table(columns, ["student", "task", "response_tokens"])


def ending_holds(ending: str, member: str, task) -> bool:
    parts = ending.split("/")[1:]
    return all(part in (member, task, task.domain) for part in parts)


@given(st.lists(ROW, max_size=30), st.booleans())
def test_every_group_has_the_mean_of_its_rows_and_no_other_has_one(rows, by_token):
    members, tasks, tokens, chosen, values = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [], [], [])
    groups = Groups.of(table_of(members, tasks, tokens), "student", ["python", "sql"])
    means = groups.means("student", np.array(chosen, dtype=bool), {"reward": np.array(values)}, by_token)
    endings = {"", *(f"/{m}" for m in members), *(f"/{t}" for t in tasks), *(f"/{t.domain}" for t in tasks)}
    endings |= {f"/{m}{rest}" for m in members for t in tasks for rest in (f"/{t}", f"/{t.domain}")}
    expected = {}
    for ending in endings:
        counted = [row for row in rows if row[3] and ending_holds(ending, row[0], row[1])]
        weights = [row[2] if by_token else 1 for row in counted]
        if sum(weights):
            expected[f"student/reward{ending}"] = fmean([row[4] for row in counted], weights)
    assert means == pytest.approx(expected, abs=1e-12)


def test_the_sums_are_those_of_the_rows_in_their_order():
    """So they do not depend on the width of a processor's vectors."""
    values = [0.1] * 10
    groups = Groups.of(table_of(["S0"] * 10, [TASKS[0]] * 10, [1] * 10), "student", ["python"])
    (mean,) = {*groups.means("student", np.ones(10, dtype=bool), {"x": np.array(values)}).values()}
    assert mean == reduce(add, values) / 10 != fmean(values)


def test_what_is_missing_is_not_a_number():
    for values in ([None, 1.0], [None, True], [None, 1]):
        assert np.isnan(floats(pa.chunked_array([values]))).tolist() == [True, False]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3))))
def test_pairs_are_numbered_in_the_order_in_which_they_appear(rows):
    table = pa.table({"name": pa.array([name for name, _ in rows], pa.string()), "number": pa.array([n for _, n in rows], pa.int32())})
    codes, pairs = pairs_of(table, "name", "number")
    assert [pairs[code] for code in codes] == rows and pairs == list(dict.fromkeys(rows))
