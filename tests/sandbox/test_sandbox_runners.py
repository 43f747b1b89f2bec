"""Runners of other domains: loaded into the jail, asked by the same jobs, and held to what they declare."""

import sys
import textwrap
from dataclasses import replace

import pytest

from populora.core.errors import SandboxUnavailableError
from populora.core.types import VerdictKind
from populora.sandbox.pool import SandboxPool
from populora.sandbox.protocol import PROFILES, Job, Limits, decode_reply
from populora.sandbox.runner import Runner

RUNNER = '''
"""A program is an operation on the words of a text, such as `reverse` or `refuse NAME`."""

import os
import sys

from populora.sandbox.runner import Multiset, Refused

calls = []

def load(program, rules):
    if program.split()[0] in rules:
        raise Refused("banned_word")
    def call(text, repetition):
        words = parse_inputs(text)
        match program.split():
            case ["reverse"]: return words[::-1]
            case ["bag"]: return Multiset(words[::-1] if repetition else words)
            case ["order"]: return words[::-1] if repetition else words
            case ["count"]: return len(words)
            case ["nested"]: return [Multiset(words)]
            case ["refuse", name]: raise Refused(name)
            case ["fail"]: return words[99]
            case ["see", name]: return name in sys.modules
            case ["keep"]: calls.append(bytes(200_000_000)); return words
            case ["end"]: os._exit(0)
            case ["end", "second"]: return words if repetition == 0 and not calls.append(1) else os._exit(0)
            case ["state"]: calls.append(1); return len(calls)
    return call

def parse_inputs(text):
    if not text.isascii():
        raise Refused("strange_word")
    return text.split()

def parse_output(text):
    return parse_inputs(text)

def write_inputs(value):
    return " ".join(value)

def write_output(value):
    if isinstance(value, Multiset):
        value = sorted(value)
    return " ".join(value) if isinstance(value, list) else str(value)

def measure(program):
    return (10 ** len(program), 1, 2, 3) if program.isupper() else (len(program), 1, 2, 3), program.lower()
'''


def run(program: str, *texts: str, **fields) -> Job:
    return Job("run", program, texts, domain="words", **fields)


@pytest.fixture(scope="module")
def runner(tmp_path_factory) -> Runner:
    folder = tmp_path_factory.mktemp("installed")
    (folder / "words_domain").mkdir()
    (folder / "words_domain" / "__init__.py").write_text("import torch, populora.training.loop  # the jail has neither")
    (folder / "words_domain" / "runner.py").write_text(textwrap.dedent(RUNNER))
    sys.path.append(str(folder))
    return Runner("words", "words_domain.runner", reasons=("banned_word", "strange_word"), control=("count", "a b"))


@pytest.fixture(scope="module")
def pool(runner):
    with SandboxPool(replace(PROFILES["training"], runners=(runner,)), workers=1, allow_weak=True) as started:
        yield started


def test_texts_are_those_of_the_runner_and_python_stays_as_it_is(pool):
    both = [run("reverse", "a b", "c"), Job("run", "def f(x): return [x]", ("'a'",)), Job("parse", texts=("x  y",), domain="words")]
    verdicts = pool.run(both, twice=True)
    assert [[value.literal for value in verdict.values] for verdict in verdicts] == [["b a", "c"], ["['a']"], ["x y"]]


def test_python_beside_another_domain_starts_with_its_first_program(runner, new_pool):
    pool = new_pool(None, replace(PROFILES["training"], runners=(runner,)))
    assert pool.run([run("count", "a")], twice=True)[0].ok
    assert {domain for worker in pool._workers for domain, _ in worker._zygotes} == {"words"}
    assert pool.run([Job("run", "def f(x): return x", ("1",))])[0].ok
    assert {domain for worker in pool._workers for domain, _ in worker._zygotes} == {"words", "python"}


def test_measures_are_the_runner_s_and_equal_normal_forms_have_one_fingerprint(pool):
    first, second = pool.run([Job("measure", text, domain="words") for text in ("Count", "count")])
    assert first.measures.values == (5, 1, 2, 3) and first.measures == second.measures


def test_a_result_that_depends_on_the_repetition_is_refused_unless_it_is_a_multiset(pool):
    order, bag = pool.run([run("order", "b a"), run("bag", "b a")], twice=True)
    assert order.kind is VerdictKind.REJECTED_NONDETERMINISTIC
    assert bag.ok and bag.values[0].literal == "a b" and bag.values[0].is_multiset


def test_calls_in_one_process_that_differ_are_refused(pool):
    (verdict,) = pool.run([run("state", "a")], twice=True)
    assert verdict.kind is VerdictKind.REJECTED_NONDETERMINISTIC


def test_contained_programs_share_a_process(runner, new_pool):
    jobs = [run("state", "a"), run("state", "b")]
    for contained, counts in ((False, ["1", "1"]), (True, ["1", "2"])):
        verdicts = new_pool(None, replace(PROFILES["training"], runners=(replace(runner, contained=contained),))).run(jobs)
        assert [verdict.values[0].literal for verdict in verdicts] == counts


def test_programs_that_share_a_process_have_the_verdicts_that_they_have_alone(runner, new_pool):
    """Also where one of them ends the process, differs between calls, or is run once because it is wrong."""
    programs = ("count", "end", "bag", "order", "fail", "reverse", "end second", "refuse strange_word")
    jobs = [run(program, "b a") for program in programs] + [run("count", str(number)) for number in range(40)]
    right, wrong = jobs[5], jobs[-1]
    expected = {right: {("l[s1:a,s1:b]",)}, wrong: {("i7",)}}
    alone, together = (
        new_pool(None, replace(PROFILES["training"], runners=(replace(runner, contained=value),))) for value in (False, True)
    )
    for twice in (False, True):
        verdicts = alone.run(jobs, twice, expected)
        assert together.run(jobs, twice, expected) == verdicts
        assert [verdict.reason for verdict in verdicts[:8]] == [
            "", "exit_without_result", "", "calls_differ" * twice,
            "exception:IndexError", "", "exit_without_result" * twice, "strange_word",
        ]  # fmt: skip
        assert all(verdict.ok for verdict in verdicts[8:])


def test_a_program_that_lacked_memory_because_of_others_runs_again_alone(runner, new_pool):
    jobs = [run("keep", str(number)) for number in range(8)]
    verdicts = new_pool(None, replace(PROFILES["training"], runners=(replace(runner, contained=True),))).run(jobs)
    assert [verdict.values[0].literal for verdict in verdicts] == [str(number) for number in range(8)]


def test_a_list_matches_a_multiset_of_its_elements_and_not_the_other_way_round(pool):
    bag, listed = pool.run([run("bag", "b a"), Job("parse", texts=("a b", "b a", "a", "a a b"), domain="words")])
    gold = bag.values[0].comparable
    assert [gold in value.comparables for value in listed.values] == [True, True, False, False]
    assert not any(value.comparable in bag.values[0].comparables for value in listed.values)


def test_an_answer_that_matches_as_a_multiset_is_still_run_in_a_second_process(pool):
    expected = pool.run([run("bag", "b a")])[0].values
    job = run("state", "b a")
    assert pool.run([job], twice=True, expected={job: {("i1",)}})[0].kind is VerdictKind.REJECTED_NONDETERMINISTIC
    right = run("reverse", "b a")
    (verdict,) = pool.run([right], twice=True, expected={right: {tuple(value.comparable for value in expected)}})
    assert verdict.ok and expected[0].comparable in verdict.values[0].comparables


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (run("count", "a", rules=("count",)), "banned_word"),
        (run("refuse strange_word", "a"), "strange_word"),
        (run("refuse anything", "a"), "undeclared_reason"),
        (run("fail", "a"), "exception:IndexError"),
        (run("nested", "a"), "unsupported_value"),
        (Job("measure", "TEN DIGITS", domain="words"), "exit_without_result"),
        (run("count", "é"), "strange_word"),
        (Job("parse", texts=("a", "é"), domain="words"), "strange_word"),
    ],
)
def test_refusals_have_the_declared_names(pool, job, reason):
    (verdict,) = pool.run([job])
    assert (verdict.kind, verdict.reason) == (VerdictKind.ERROR, reason)


@pytest.mark.parametrize("name", ["words_domain", "words_domain.runner", "populora", "populora.sandbox.runner", "torch"])
def test_a_program_finds_neither_the_runner_nor_populora(pool, name):
    python = f"import sys\ndef f(x):\n    return {name!r} in sys.modules"
    for verdict in pool.run([run(f"see {name}", "a"), Job("run", python, ("1",))]):
        assert verdict.ok and verdict.values[0].canonical == "False"


def test_python_programs_see_the_same_modules_beside_another_domain(runner, new_pool):
    """Else a program could be valid in a mixed run alone, such as one that imports the parser of SQL."""
    program = "import sys\ndef f(x):\n    return sorted(sys.modules)"
    sql = replace(runner, packages=("sqlglot",))
    alone, beside = (new_pool(None, replace(PROFILES["training"], runners=runners)) for runners in ((), (sql,)))
    verdicts = [pool.run([Job("run", program, ("1",)), Job("run", "import sqlglot\ndef f(x): pass", ("1",))]) for pool in (alone, beside)]
    assert verdicts[0] == verdicts[1] and verdicts[0][0].ok and verdicts[0][1].reason == "exception:ModuleNotFoundError"


@pytest.mark.parametrize("tier", ["full", "standard"])
def test_a_runner_finds_its_own_packages_and_nothing_else_that_is_installed(runner, new_pool, tmp_path_factory, tier):
    folder = tmp_path_factory.mktemp("greedy")
    (folder / "greedy_domain").mkdir()
    (folder / "greedy_domain" / "runner.py").write_text(f"import numpy\n{textwrap.dedent(RUNNER)}")
    sys.path.append(str(folder))
    greedy = replace(runner, module="greedy_domain.runner", packages=("sqlglot",))
    with pytest.raises(SandboxUnavailableError, match="No module named 'numpy'"):
        new_pool(tier, replace(PROFILES["training"], runners=(greedy,)))


def test_texts_in_a_reply_about_python_are_ignored_and_those_of_a_domain_are_needed(runner):
    def reply(body: str) -> bytes:
        return len(body).to_bytes(4, "big") + body.encode()

    shown = reply('[{"kind": "ok", "values": [["i", "1"]], "texts": ["2"]}]')
    (forged,) = decode_reply(shown, [Job("run", "", ("1",))], Limits()) or []
    assert forged.values[0].literal == "1"
    limits = Limits(runners=(runner,))
    for body in ('["i", "1"]], "texts": []', '["i", "1"]]', '["i", "1"]], "texts": [3]', '["x"]], "texts": ["3"]'):
        assert decode_reply(reply(f'[{{"kind": "ok", "values": [{body}}}]'), [run("count", "a")], limits) is None
    assert decode_reply(reply('[{"kind": "ok", "values": [["m", "a"]], "texts": ["2"]}]'), [Job("run", "", ("1",))], Limits()) is None


def test_a_long_text_of_a_runner_is_refused(runner):
    body = '[{"kind": "ok", "values": [["i", "1"]], "texts": ["' + "7" * 401 + '"]}]'
    frame = len(body).to_bytes(4, "big") + body.encode()
    (verdict,) = decode_reply(frame, [run("count", "a")], Limits(runners=(runner,))) or []
    assert (verdict.kind, verdict.reason) == (VerdictKind.ERROR, "output_limit")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"module": "words_domain.missing"}, "words"),
        ({"module": "no_such_package.runner"}, "words"),
        ({"module": "words"}, "inside a package"),
        ({"control": ("fail", "a")}, "domain 'words' does not run its domain's identity program 'fail' on 'a'"),
        ({"packages": ("no_such_package",)}, "no_such_package"),
        ({"packages": ("typing_extensions",)}, "single module"),
    ],
)
def test_a_broken_runner_stops_the_sandbox_with_the_name_of_its_domain(runner, changes, words):
    with pytest.raises(SandboxUnavailableError, match=words):
        SandboxPool(replace(PROFILES["training"], runners=(replace(runner, **changes),)), workers=1, allow_weak=True)
