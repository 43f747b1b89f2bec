"""The state of a run, its checkpoint and the way back, and the timer of its phases."""

import copy
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from populora.core.config import Config
from populora.core.errors import RunDirectoryError
from populora.core.types import Generation, Lineage, Member, Problem, Rating, Request, Role
from populora.domains.registry import load_domain
from populora.engine.bank import Bank
from populora.engine.learning.learner import Learner
from populora.engine.model.loading import base_name
from populora.engine.sampling.sampler import RequestSource, Sampler
from populora.runs.checkpoint import ADAPTERS, OPTIMISER, Checkpoint, save_checkpoint
from populora.tasks.coverage import Archive
from populora.tasks.render import Prompts, solve_prompt
from populora.tasks.verifier import TaskVerifier
from populora.training.buffer import ProblemBuffer
from populora.training.population import Population

AnyRequest = TypeVar("AnyRequest", bound=Request)


@dataclass
class Run:
    """Everything that a run carries from step to step. ``step`` counts the finished steps."""

    config: Config
    prompts: Prompts
    sampler: Sampler
    learner: Learner
    bank: Bank
    """The adapters, one slot a member. In one process sampler and learner use these tensors, else learners have them."""
    verifier: TaskVerifier
    fits: Callable[[str], bool]
    """Return True for a prompt of at most ``selfplay.max_prompt_tokens``."""
    fingerprints: dict[str, str]
    """Base, tokenizer, domains, prompts, held-out suite and sandbox tier: a resume must find them unchanged."""
    computation: dict[str, str]
    """What computes: processor, decoder, the learner's attention and products. On a change the results may differ in the last bits."""
    population: Population
    buffer: ProblemBuffer
    archives: dict[str, Archive]
    """By domain."""
    held_out: list[Problem]
    """Problems that every solver is evaluated on; empty where evaluation is off."""
    step: int = 0
    valid_counts: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    """Number of valid and of all proposals by proposer and task type, since the last evolution."""
    reward_sums: dict[str, list[float]] = field(default_factory=dict)
    """Sum and number of the rewards by proposer, since the last evolution."""

    def sync_weights(self, slots: Iterable[int] | None = None) -> None:
        """Send the adapters of these slots (default: all) to the sampler."""
        self.sampler.sync_weights(self.bank, range(self.bank.slots) if slots is None else slots)

    def solve_prompt(self, problem: Problem) -> str:
        """Render the prompt of a solver."""
        return solve_prompt(self.prompts[problem.task.domain], problem)

    @property
    def stop(self) -> str:
        """The text that ends a response, the same in all domains."""
        return next(iter(self.prompts.values())).stop

    def sample(self, requests: Sequence[AnyRequest], temperature: float = 1.0) -> list[tuple[AnyRequest, list[Generation]]]:
        """Pair each request with its responses. Temperature 1 is the policy that the learner differentiates, 0 is greedy."""
        generations = self.sampler.generate(requests, self.config.selfplay.max_response_tokens, temperature, self.stop)
        return list(zip(requests, generations, strict=True))

    def stream(self, source: RequestSource) -> Iterator[tuple[Request, list[Generation]]]:
        """Sample as `sample` does, for requests that arrive while others are sampled."""
        return self.sampler.stream(source, self.config.selfplay.max_response_tokens, 1.0, self.stop)


class PhaseTimer:
    """Measures the seconds of each phase; ``announce`` is called with its name when it begins."""

    def __init__(self, announce: Callable[[str], None] = lambda phase: None):
        self.seconds: dict[str, float] = {}
        self.announce = announce

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        self.announce(phase)
        started = time.perf_counter()
        yield
        self.seconds[phase] = time.perf_counter() - started


def save_run(run: Run, folder: Path) -> None:
    """Write a checkpoint: the members as PEFT folders, and everything else that the coming steps depend on, but for the configuration and
    the base."""
    config = run.config
    archives = {
        f"archive.{domain}.{name}": torch.from_numpy(np.array(values))
        for domain, archive in run.archives.items()
        for name, values in archive.state().items()
    }
    state = {
        "members": [asdict(member) for member in run.population.members],
        "buffer": run.buffer.state(),
        "valid_counts": run.valid_counts,
        "reward_sums": run.reward_sums,
    }

    write = partial(write_members, run, run.population.slots)
    checkpoint = Checkpoint(run.step, archives, state)
    save_checkpoint(folder, checkpoint, config.keep_checkpoints, write, config.keep_checkpoints_every, config.checkpoint_every)


def write_members(run: Run, slots: Mapping[str, int], folder: Path) -> dict[str, str]:
    """Write these slots, by name, into the folder of a checkpoint. Returns the files' digests by path from it."""
    adapters = write_adapters(run, slots, folder / ADAPTERS)
    optimiser = run.bank.write_optimiser(folder / OPTIMISER, slots)
    return {f"{kind}/{name}": value for kind, part in ((ADAPTERS, adapters), (OPTIMISER, optimiser)) for name, value in part.items()}


def write_adapters(run: Run, slots: Mapping[str, int], folder: Path) -> dict[str, str]:
    """Write a PEFT folder for each of these slots, by name. Returns the files' digests by path from ``folder``."""
    return run.bank.write_adapters(folder, slots, base_name(run.config.base), run.config.lora.targets)


def read_members(run: Run, slots: Mapping[str, int], checkpoint: Checkpoint) -> None:
    """Undo `write_members`. Raises `AdapterError` for a checkpoint of other adapters, `RunDirectoryError` for a damaged one."""
    try:
        run.bank.read(checkpoint.folder / ADAPTERS, checkpoint.folder / OPTIMISER, slots, checkpoint.digests)
    except RunDirectoryError as error:
        raise RunDirectoryError(f"{error} {checkpoint.remedy}") from error


def restore(run: Run, checkpoint: Checkpoint) -> None:
    """Undo `save_run`, from what `load_checkpoint` read. Raises `AdapterError` for a checkpoint of other adapters, `RunDirectoryError` for
    one of another archive."""

    def part(prefix: str) -> dict[str, Any]:
        return {name.removeprefix(prefix): tensor.numpy() for name, tensor in checkpoint.tensors.items() if name.startswith(prefix)}

    archives = {name: Archive.restore(part(f"archive.{name}."), load_domain(name)) for name in run.archives}
    population = Population(tuple(_member_from(values) for values in checkpoint.state["members"]))
    read_members(run, population.slots, checkpoint)
    run.archives, run.population = archives, population
    run.buffer.restore(checkpoint.state["buffer"])
    run.valid_counts = copy.deepcopy(checkpoint.state["valid_counts"])
    run.reward_sums = copy.deepcopy(checkpoint.state.get("reward_sums", {}))  # a run that began without them does not use them
    run.step = checkpoint.step


def _member_from(values: dict[str, Any]) -> Member:
    lineage = Lineage.from_plain(values["lineage"])
    return Member(**{**values, "role": Role(values["role"]), "rating": Rating(**values["rating"]), "lineage": lineage})
