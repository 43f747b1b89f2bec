"""Phases 2 and 3 overlapped: students start early, the sampler does not wait for verdicts, and delays change nothing that is recorded."""

import threading
import time
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
from small_run import SMALL

from populora.core.errors import SandboxFault
from populora.core.types import Request
from populora.runs.style import PHASES
from populora.training.loop import build_run
from populora.training.matchmaking import match
from populora.training.rollout import BackgroundVerifier, RolloutFeed, rollout
from populora.training.seed_buffer import fill_buffer
from populora.training.step import selfplay_step

CONFIG = replace(SMALL, selfplay=replace(SMALL.selfplay, prompts_per_type=3, max_response_tokens=64))


@pytest.fixture(scope="module")
def run():
    with build_run(CONFIG) as made:
        fill_buffer(made)
        yield made


class Delayed:
    """The run's verifier, which takes ``seconds()`` longer for each batch; notes which threads call it."""

    def __init__(self, verifier, seconds):
        self.verifier, self.seconds, self.threads = verifier, seconds, set()

    def validate(self, responses):
        self.threads.add(threading.get_ident())
        time.sleep(self.seconds())
        return self.verifier.validate(responses)

    def judge(self, responses):
        self.threads.add(threading.get_ident())
        time.sleep(self.seconds())
        return self.verifier.judge(responses)


class Noted:
    """The run's sampler; ``starts`` are the keys that the feed handed out at each call, ``idle`` says that it waits for work, or is
    done."""

    def __init__(self, sampler):
        self.sampler, self.starts, self.idle = sampler, [], False
        self.generate, self.independent = sampler.generate, sampler.independent

    def stream(self, source, *settings):
        class Spy:
            def next(_, block):
                self.idle = block
                requests = source.next(block)
                self.idle = block and not requests  # then the stream is over
                self.starts.append(tuple(request.key for request in requests))
                return requests

        return self.sampler.stream(Spy(), *settings)


def rolled_out(run, overlap: str, seconds=lambda: 0.0, noted=None):
    noted, delayed = noted or Noted(run.sampler), Delayed(run.verifier, seconds)
    config = replace(run.config, selfplay=replace(run.config.selfplay, overlap=overlap))
    changed = replace(run, config=config, sampler=noted, verifier=delayed)
    return rollout(changed, 1, match(run.population, config, 1)), noted, delayed


def texts(result):
    return [(p.author, p.group, p.generation.text, p.rejection) for p in result.proposals], [
        (a.student, a.problem.id, a.generation.text, a.correct) for a in result.attempts
    ]


@pytest.mark.slow
def test_what_is_recorded_does_not_depend_on_when_verdicts_come(run):
    draw = np.random.default_rng(0)
    results = [rolled_out(run, overlap)[0] for overlap in ("reproducible", "eager", "off")]
    results += [rolled_out(run, overlap, lambda: draw.random() / 10)[0] for overlap in ("reproducible", "eager")]
    assert all(texts(result) == texts(results[0]) and result.trained == results[0].trained for result in results[1:])
    assert len(results[0].proposals) == 2 * 3 * 3 * 3 and results[0].attempts
    assert {a.student for a in results[0].attempts} == {"S0", "S1"}


@pytest.mark.slow
def test_reproducible_starts_the_same_requests_at_the_same_calls_whatever_verification_takes():
    draw = np.random.default_rng(1)
    with build_run(replace(CONFIG, base=replace(CONFIG.base, kernels="torch"))) as run:
        fill_buffer(run)
        assert not RolloutFeed(run, 1, match(run.population, run.config, 1)).collects_at_once
        (result, noted, _), (other, delayed, _) = (
            rolled_out(run, "reproducible"),
            rolled_out(run, "reproducible", lambda: draw.random() / 20),
        )
    assert noted.starts == delayed.starts
    assert result.proposals == other.proposals and result.attempts == other.attempts  # to the last bit of every log-probability


@pytest.mark.slow
def test_a_sampler_of_independent_rows_gives_the_same_bytes_whenever_verdicts_come(run):
    if not run.sampler.independent:
        pytest.skip("there is no C compiler")
    draw = np.random.default_rng(1)
    assert RolloutFeed(run, 1, match(run.population, run.config, 1)).collects_at_once
    (result, *_), (other, *_) = rolled_out(run, "reproducible"), rolled_out(run, "reproducible", lambda: draw.random() / 5)
    assert result.proposals == other.proposals and result.attempts == other.attempts  # to the last bit of every log-probability


@pytest.mark.parametrize("overlap", ["reproducible", "eager"])
def test_students_start_before_the_last_teacher_is_done(run, overlap):
    _, noted, _ = rolled_out(run, overlap)
    first_start = next(at for at, keys in enumerate(noted.starts) if any(key[0] == "solve" for key in keys))
    assert first_start < len(noted.starts) / 2


@pytest.mark.slow
def test_the_sampler_waits_for_no_verdict_while_it_has_work(run):
    """Each batch's verification, in its own thread, ends only when the sampler has gone on for three calls, or has no work."""
    noted, went_on = Noted(run.sampler), []

    def wait_for_the_sampler():
        begun, deadline = len(noted.starts), time.monotonic() + 300
        while len(noted.starts) < begun + 3 and not noted.idle:
            assert time.monotonic() < deadline, "the sampler waits for this verdict"
            time.sleep(0.001)
        went_on.append(len(noted.starts) >= begun + 3)
        return 0.0

    _, _, delayed = rolled_out(run, "eager", wait_for_the_sampler, noted)
    assert any(went_on) and threading.get_ident() not in delayed.threads


def test_a_fault_of_the_sandbox_ends_the_step(run):
    def fault():
        raise SandboxFault("no more")

    with pytest.raises(SandboxFault, match="no more"):
        rolled_out(run, "reproducible", fault)


@pytest.mark.slow
def test_the_display_knows_the_phases_of_a_step_in_their_order(run):
    announced: list[str] = []
    selfplay_step(replace(run, config=SMALL), announced.append)
    assert announced == list(PHASES)


def test_verdicts_that_take_long_hold_up_no_others_where_any_order_will_do():
    slow = threading.Event()

    def verify(batch):
        if batch[0][0].key == ("slow",):
            slow.wait(300)
        return [[request.key] for request, _ in batch]

    verifier = BackgroundVerifier(verify, workers=1)
    for name in ("slow", "quick"):
        verifier.add(Request("text", 0, 1, (name,)), [])
        verifier.submit(1)
    assert verifier.collect(in_any_order=True) == {("quick",): [("quick",)]}
    slow.set()
    assert verifier.collect() == {("slow",): [("slow",)]} and not verifier.pending
    verifier.close()


@pytest.mark.parametrize(("workers", "wait_for_each_other"), [(36, False), (8, True)])
def test_slow_programs_on_all_workers_hold_up_no_batch(workers, wait_for_each_other):
    """Each of 40 batches waits until all have begun, as if its slow program had a worker. With fewer workers some would wait for ever."""
    all_begun = threading.Barrier(40)

    def verify(batch):
        all_begun.wait(0.5 if wait_for_each_other else 300)
        return [[request.key] for request, _ in batch]

    verifier = BackgroundVerifier(verify, workers)
    for name in map(str, range(40)):
        verifier.add(Request("text", 0, 1, (name,)), [])
        verifier.submit(1)
    with pytest.raises(threading.BrokenBarrierError) if wait_for_each_other else nullcontext():
        while verifier.pending:
            verifier.collect(in_any_order=True)
    assert wait_for_each_other or len(verifier.results) == 40
    verifier.close()
