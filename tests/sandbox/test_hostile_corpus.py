"""The hostile corpus against `populora verify`, from outside, in every tier that the machine has."""

import json
import os
import subprocess
import sys
from pathlib import Path

import corpus  # noqa: F401 - it adds the cases
import pytest
from corpus_case import ADD, CANARY, CANARY_FILE, CASES, Case

CONTROL = {"role": "program", "program": ADD, "inputs": "41"}
JAIL = ["bwrap", "--dev-bind", "/", "/", "--unshare-user", "--disable-userns"]
"""A place without user namespaces, as most containers are: bubblewrap does not start in there."""
PLACES = {"full": [], "standard": [], "standard without user namespaces": JAIL, "weak": []}
LIMITS = ["--cpu-seconds", "0.3", "--wall-seconds", "1", "--memory-mb", "256", "--workers", "2"]


def talk(place: str, cases: list[Case]) -> tuple[list[dict], subprocess.CompletedProcess]:
    """Results of ``cases`` with a control behind each, from one process."""
    tier = place.split(maxsplit=1)[0]
    arguments = [*PLACES[place], sys.executable, "-m", "populora.cli.main", "verify", *LIMITS]
    arguments += ["--tier", tier] if not PLACES[place] else []
    requests = [{**request, "id": number} for number, request in enumerate(r for case in cases for r in (case.request, CONTROL))]
    done = subprocess.run(
        [*arguments, *(["--allow-weak"] if tier == "weak" else [])], input="".join(json.dumps(request) + "\n" for request in requests),
        capture_output=True, text=True, check=False, env={**os.environ, "POPULORA_CANARY": CANARY}, timeout=400,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()], done


def outcome(result: dict) -> str:
    if "correct" in result:
        return "correct" if result["correct"] else "incorrect"
    return f"ok {result['value']}" if result["verdict"] == "ok" else f"{result['verdict']} {result['kind']}"


def holds(case: Case, result: dict) -> bool:
    text = outcome(result)
    return text in case.allowed or ("not ok" in case.allowed and not text.startswith("ok "))


def settled(place: str, case: Case, pair: list[dict]) -> list[dict]:
    """The results of a case and of the control behind it, or those of a second try: under limits so tight a busy machine may be late
    once, and the eight processes that a doubtful program runs in agree on the toss of a coin once in 128."""
    fine = holds(case, pair[0]) and outcome(pair[1]) == "ok 42"
    by_chance = case.group == "chance" or any(result.get("verdict") == "timeout" for result in pair)
    return talk(place, [case])[0] if by_chance and not fine else pair


def test_without_filters_the_corpus_would_notice():
    """The negative control: acts that do no harm, in a sandbox that has lost its filters."""
    names = ["reads", "reads the canary", "lists", "the C library opens", "its own source", "process environment"]
    names += ["socket", "unix socket", "pair", "process numbers", "home"]
    cases = [case for case in CASES if case.filtered and case.name in names]
    Path(CANARY_FILE).write_text(CANARY)
    results, done = talk("weak", cases)
    assert done.returncode == 0 and len(cases) == len(names)
    assert [case.name for case, result in zip(cases, results[::2], strict=True) if holds(case, result)] == []
    assert CANARY in done.stdout


def wrong_outcomes(place: str, cases: list[Case], results: list[dict]) -> list[str]:
    """The cases, or the controls behind them, with an outcome that is not allowed."""
    wrong = []
    for at, case in enumerate(cases):
        result, control = settled(place, case, results[2 * at : 2 * at + 2])
        if not holds(case, result) or outcome(control) != "ok 42":
            wrong.append(f"{case.group}: {case.name}: {result}, allowed {sorted(case.allowed)}, then {control}")
    return wrong


@pytest.mark.parametrize("place", ["full", pytest.param("standard", marks=pytest.mark.slow)])
def test_a_sample_of_every_class_gets_an_allowed_outcome(place):
    Path(CANARY_FILE).write_text(CANARY)
    groups = {case.group: [member for member in CASES if member.group == case.group] for case in CASES}
    cases = [case for members in groups.values() for case in members[:: max(1, len(members) // 4)]]
    results, done = talk(place, cases)
    if done.returncode and "lacks: " in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0 and CANARY not in done.stdout and wrong_outcomes(place, cases, results) == []


@pytest.fixture(scope="module", params=["full", *(pytest.param(place, marks=pytest.mark.thorough) for place in list(PLACES)[1:])])
def judged(request):
    Path(CANARY_FILE).write_text(CANARY)
    cases = [case for case in CASES if request.param != "weak" or not case.filtered]
    results, done = talk(request.param, cases)
    if done.returncode and "lacks: " in done.stderr:
        pytest.skip(done.stderr)
    return request.param, cases, results, done


@pytest.mark.slow
def test_every_request_of_the_corpus_gets_an_allowed_outcome_and_the_next_one_its_answer(judged):
    place, cases, results, done = judged
    assert done.returncode == 0 and f"tier {place.split()[0]}" in done.stderr, done.stderr
    assert [result["id"] for result in results] == list(range(2 * len(cases)))
    assert wrong_outcomes(place, cases, results) == []


@pytest.mark.slow
def test_nothing_of_the_machine_shows_and_nothing_is_left_on_it(judged):
    _, _, _, done = judged
    assert CANARY not in done.stdout and "root:" not in done.stdout
    assert Path(CANARY_FILE).read_text() == CANARY
    assert not Path(CANARY_FILE).with_name("populora_was_here").exists()
