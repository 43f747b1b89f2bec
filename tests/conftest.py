"""A hand-made step of a 2T+2S population, small enough to compute every metric in the head."""

import os
import signal
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported: a test that names no base must not ask the network for it
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # as in an active environment

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import wraps
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest

from populora.core.types import (
    Attempt,
    Example,
    Generation,
    Lineage,
    Matchup,
    Measures,
    Member,
    Problem,
    Proposal,
    Rating,
    Role,
    TaskType,
    UpdateStats,
)
from populora.runs.step_record import Evolution

if find_spec("hypothesis"):  # vLLM's environment has no need of it
    from hypothesis import settings

    # The same examples for everybody, whatever time they take. `pytest --hypothesis-profile=default` looks for new ones.
    settings.register_profile("reproducible", derandomize=True, database=None, deadline=None)
    settings.load_profile("reproducible")


def pytest_configure(config: pytest.Config) -> None:
    """With POPULORA_TENSOR_OFFSET, every tensor from a file or from NumPy begins so many bytes after a multiple of 64 (tests/numerics)."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores Ctrl-C, and its children would
    if offset := int(os.environ.get("POPULORA_TENSOR_OFFSET", "0")):
        from alignment import tensors_at

        stack = ExitStack()
        stack.enter_context(tensors_at(offset))
        config.add_cleanup(stack.close)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu"):
        from torch.cuda import is_available

        if not is_available():
            pytest.skip("needs a CUDA device")


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    """Give torch its number of threads back, which the command of a benchmark changes for its whole process."""
    before = sys.modules["torch"].get_num_threads() if "torch" in sys.modules else 0
    yield
    if before:
        sys.modules["torch"].set_num_threads(before)


@pytest.fixture
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `populora.load_config` give steps of few prompts, and no evaluation: examples show what a run is, not how well it learns."""
    import populora

    load = populora.load_config

    @wraps(load)  # doctest looks for examples in functions of the module alone
    def few(*args: Any, **changes: Any) -> Any:
        play = {"prompts_per_type": 2, "rho_samples": 3, "max_response_tokens": 96, **changes.pop("selfplay", {})}
        return load(*args, **{"selfplay": play, "evaluation": {"every": 0}, **changes})

    monkeypatch.setattr(populora, "load_config", few)


@pytest.fixture(autouse=True)
def _empty_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands without a run take the newest of `runs/`: a checkout in which somebody has trained must not change what a test does.

    Nor must seed problems in the user's cache, and tests put none there.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POPULORA_SEEDS", str(tmp_path / "seeds"))


CODE_O, CODE_I, CODE_F = TaskType.CODE_O, TaskType.CODE_I, TaskType.CODE_F
SQL_O, SQL_I = TaskType("sql_o"), TaskType("sql_i")


def response(text: str, tokens: int, stopped: bool = True) -> Generation:
    return Generation(text, (1, 2, 3), tuple(range(tokens)), (-0.5,) * tokens, entropy=0.7, stopped=stopped)


def problem(name: str, task: TaskType, author: str, step: int) -> Problem:
    hidden = (Example("2", "4"),) if task is CODE_F else ()
    return Problem(name, task, "def f(x):\n    return x * 2", (Example("3", "6"),), hidden, "doubles" if hidden else "", author, step)


def proposals_of(step: int) -> tuple[Proposal, ...]:
    """T0: three valid (code_o twice, the same program; code_f) and one malformed; T1: one valid code_i, one that timed out."""
    valid = [
        ("T0", CODE_O, 0, Measures((5, 1, 2, 1), "a")),
        ("T0", CODE_O, 0, Measures((5, 1, 2, 1), "a")),
        ("T0", CODE_F, 1, Measures((9, 9, 90, 9), "a")),
        ("T1", CODE_I, 0, Measures((7, 3, 4, 2), "b")),
    ]
    made = []
    for index, (author, task, group, measures) in enumerate(valid):
        new = problem(f"{step}-{index}", task, author, step)
        made.append(Proposal(author, task, group, response(f"proposal {index}", 10 + index), True, new, measures=measures))
    return (
        *made,
        Proposal("T0", CODE_F, 1, response("broken", 20, stopped=False), False, None, "format"),
        Proposal("T1", CODE_I, 0, response("while True", 6), True, None, "out_of_resources"),
    )


def attempts_of(step: int, proposals: tuple[Proposal, ...]) -> tuple[Attempt, ...]:
    """S0 on T0's problems: right and wrong, right twice, wrong twice; S1 on T1's: void; S1 fills with an older problem."""
    first, second, third, fourth = (proposal.problem for proposal in proposals[:4])
    assert first and second and third and fourth
    old = problem("0-old", CODE_I, "seed", 0)
    return (
        Attempt("S0", first, response("think</think> <answer>6</answer>", 4), True, True),
        Attempt("S0", first, response("5", 6), False, False, "format"),
        Attempt("S0", second, response("6", 8), True, True),
        Attempt("S0", second, response("6", 8), True, True),
        Attempt("S0", third, response("def f(x): return x", 10), True, False, "wrong_value"),
        Attempt("S0", third, response("def f(x): return x", 12), True, False, "wrong_value"),
        Attempt("S1", fourth, response("3", 2), True, False, "gold_not_reproduced", void=True),
        Attempt("S1", old, response("3", 2), True, True, from_buffer=True),
    )


def member(name: str, role: Role, slot: int, mu: float) -> Member:
    return Member(name, role, slot, Rating(mu, 2.0), Lineage(name, 0, 0))


@pytest.fixture(scope="session")
def make_mixed_record(make_record: Callable[..., Any]) -> Callable[..., Any]:
    """``make_mixed_record(step=1, **changes)``: that step of two domains. T0's second problem and T1's rejected proposal are of SQL."""

    def make(step: int = 1, **changes: Any) -> Any:
        record = make_record(step)
        query = Problem(f"{step}-1", SQL_O, "SELECT a * 2 FROM t", (Example("t(a)\n3\n4", "6\n8"),), author="T0", step=step)
        valid = record.proposals[1]._replace(task=SQL_O, group=2, problem=query, measures=Measures((1, 2, 3, 4), "c"))
        proposals = (record.proposals[0], valid, *record.proposals[2:5], record.proposals[5]._replace(task=SQL_I, group=1))
        answered = (attempt._replace(problem=query) for attempt in record.attempts[2:4])
        attempts = (*record.attempts[:2], *answered, *record.attempts[4:])
        coverage = {"coverage/python": 0.01, "total_problems/python": 41.0, "coverage/sql": 0.0, "total_problems/sql": 1.0}
        held_out = {"S0/all": 0.5, "S1/all": 0.7, "S0/code_i": 0.6, "S1/code_i": 0.8, "S0/sql_o": 0.4, "S1/sql_o": 0.6, "S0/tokens": 30.0}
        fields = {"proposals": proposals, "attempts": attempts, "coverage": coverage, "held_out": held_out, "domains": ("python", "sql")}
        return make_record(step, **{**fields, **changes})

    return make


@pytest.fixture(scope="session")
def make_record() -> Callable[..., Any]:
    """``make_record(step=1, **changes)``: a `StepRecord` in all but its class."""

    def make(step: int = 1, **changes: Any) -> Any:
        proposals = proposals_of(step)
        attempts = attempts_of(step, proposals)
        rewards = {"format": -1.0, "wrong_value": -0.5, "gold_not_reproduced": 0.0, "": 1.0}
        update = UpdateStats(
            loss=0.25, grad_norm=0.5, entropy=0.7, kl=0.01, ess=0.9, mean_difference=1e-7, max_difference=1e-6, tokens=40, base_kl=0.02
        )
        skipped = UpdateStats(skipped=True)
        fields = {
            "step": step, "proposals": proposals, "attempts": attempts,
            "matchups": (Matchup("T0", "S0", 0.6, 0.5, "teacher"), Matchup("T1", "S1", 0.5, None, "none")),
            "teacher_rewards": (0.5, 0.0, 0.0, 0.0, -1.0, -1.0), "rhos": (0.5, 1.0, 0.0, None, None, None),
            "teacher_advantages": (1.5, 0.5, 0.25, 0.0, -1.25, -1.0),
            "student_advantages": (0.75, -0.75, 0.5, -0.5, None, None, None, 0.0),
            "student_rewards": tuple(rewards[attempt.reason] for attempt in attempts),
            "trained": (True, True, True, True, False, False, False, True),
            "members": (
                member("T0", Role.TEACHER, 0, 27.0), member("T1", Role.TEACHER, 1, 25.0),
                member("S0", Role.STUDENT, 2, 23.0), member("S1", Role.STUDENT, 3, 25.0),
            ),
            "updates": {"T0": update, "T1": skipped, "S0": update, "S1": update},
            "evolution": Evolution(
                (Lineage("T1", 1, step, "x2", ("T0#0:ab", "T1#0:cd"), ("evolve", step, "T1"), 1.1, (0.9, 0.4), basis_cosine=0.8),)
            ),
            "seconds": {"propose": 2.0, "solve": 3.0, "update": 5.0}, "overlapped": {"judge": 1.5},
            "tokens": {"propose": 100, "solve": 60, "update": 160},
            "coverage": {"coverage": 0.01, "total_problems": 41.0}, "repeats": frozenset({f"{step}-1"}),
            "held_out": {"S0/all": 0.5, "S1/all": 0.7, "S0/tokens": 30.0}, "domains": ("python",),
        }  # fmt: skip
        return SimpleNamespace(**{**fields, **changes})

    return make
