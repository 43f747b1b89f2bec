"""Settings of the retention benchmark. The defaults are the paper's grid: snapshots at steps 5, 10, 25, 50 and 100, 50 steps of retraining.

The paper gives one example of a pair of tasks, and no batches or number of seeds; those are ours. ``operators`` are texts: ``"x4"`` is an
operator at its defaults, ``"x4 swapped"`` has its parents in the other order, ``"m1 epsilon=0"`` has another strength, and
``"m3 refactor=balanced"`` splits singular values in another way.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

import torch

from populora.adapters.adapter import Adapter
from populora.adapters.operators import OPERATORS, Operator, get_operator
from populora.adapters.operators.breeding import breed
from populora.adapters.operators.registry import parse_strengths
from populora.adapters.svd import Refactor
from populora.core.config import (
    BaseConfig,
    Config,
    EngineConfig,
    EvolutionConfig,
    LearnerConfig,
    LoraConfig,
    PopulationConfig,
    RewardConfig,
    SandboxConfig,
    SelfplayConfig,
    TasksConfig,
)
from populora.core.config_check import check
from populora.core.config_file import load_config
from populora.core.errors import ConfigError
from populora.core.types import Lineage, task_types
from populora.sandbox.runner import PYTHON

KNOWN = frozenset(task_types([PYTHON]))
CONTROLS = {1: "copy_parent", 2: "linear_0_5"}
"""The operator that a child is compared with, by the number of its parents."""


@dataclass(frozen=True)
class Variant:
    """An operator with its strengths."""

    name: str
    operator: Operator
    strength: dict[str, float | str]
    refactor: str
    swapped: bool

    @property
    def arity(self) -> int:
        """The number of parents."""
        return self.operator.arity


@dataclass(frozen=True)
class RetentionConfig:
    """The grid, how the adapters are trained, and the settings of a run that bear on it."""

    seeds: tuple[int, ...] = (0, 1, 2)
    """Each seed has parents, children and problems of its own. All of them at ``repeated``, the first at every snapshot."""
    snapshots: tuple[int, ...] = (5, 10, 25, 50, 100)
    repeated: int = 25
    """The snapshot that intervals over seeds are made at."""
    retrain_steps: int = 50
    parents: tuple[str, str] = ("code_o", "code_f")
    """The tasks of the two parents, of Python. Mutations take the first parent, crossovers both."""
    operators: tuple[str, ...] = tuple(name for name, operator in OPERATORS.items() if operator.in_paper)
    """By name or alias, possibly with strengths: ``"x4"``, ``"x4 swapped"``, ``"m1 epsilon=0"``. The controls are always added."""
    refactor: Refactor = "revive"
    """How operators split a child's singular values (`populora.adapters.svd`)."""
    parent_prompts: int = 16
    """Problems of a parent's step. Parents are few, and the more they learn, the more there is to lose."""
    prompts: int = 8
    """Problems of a child's step; a child of two parents has half of each task."""
    samples: int = 8
    initial_problems: int = 24
    """Problems of each of its tasks that every adapter attempts before it is trained. They measure the immediate cost of an operator."""
    problems: str = ""
    """JSON Lines file of problems that every seed draws from; empty: the 96 of each task that ship with the benchmark."""
    pool: int = 24
    """Shipped problems of each task that a seed draws from in every step. The first seeds have different ones, with 24 the first four."""
    window: int = 10
    """Steps that a pass rate is averaged over before it is compared."""
    recovered_share: float = 0.95
    """Share of the parent's pass rate at which a child counts as recovered."""
    margin: float = 0.05
    """Difference in pass rate, to either side, within which a child and its control count as equal."""
    checkpoint_every: int = 5
    threads: int = 0
    max_prompt_tokens: int = 6144
    max_response_tokens: int = 8096
    base: BaseConfig = field(default_factory=BaseConfig)
    lora: LoraConfig = field(default_factory=LoraConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    tasks: TasksConfig = field(default_factory=TasksConfig)
    rewards: RewardConfig = field(default_factory=RewardConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    sandbox: SandboxConfig = field(default_factory=SandboxConfig)

    def run(self, seed: int, slots: int) -> Config:
        """Make the settings of a run of ``slots`` solvers. One of them is called a teacher, since a run has to have one."""
        shared = ("threads", "base", "lora", "engine", "tasks", "rewards", "learner", "sandbox")
        limits = SelfplayConfig(max_prompt_tokens=self.max_prompt_tokens, max_response_tokens=self.max_response_tokens)
        population, evolution = PopulationConfig(teachers=1, students=slots - 1), EvolutionConfig(every=0)
        values = {name: getattr(self, name) for name in shared}
        return Config(seed=seed, selfplay=limits, population=population, evolution=evolution, **values)

    def children(self) -> list[Variant]:
        """List the variants that are bred in each cell, controls included, mutations first. Raises `ConfigError`."""
        variants = [read_variant(text, self.refactor) for text in (*self.operators, *CONTROLS.values())]
        return sorted({variant.name: variant for variant in variants}.values(), key=lambda variant: variant.arity)

    def cells(self) -> list[tuple[int, int]]:
        """List the (seed, snapshot) of each part of the grid. The repeated ones are first, since the verdicts depend on them."""
        return [(seed, self.repeated) for seed in self.seeds] + [(self.seeds[0], s) for s in self.snapshots if s != self.repeated]


def read_variant(text: str, refactor: str) -> Variant:
    """Parse the text of a variant; ``refactor`` applies where it names none. Raises `ConfigError`."""
    name, *words = text.split() or [""]
    operator, swapped = get_operator(name), "swapped" in words
    strength = parse_strengths((word for word in words if word != "swapped"), f"'{text}', a strength is given twice")
    chosen = str(strength.pop("refactor", ""))
    if chosen not in ("", *get_args(Refactor)):
        raise ConfigError(f"'{text}', refactor: expected one of {', '.join(get_args(Refactor))}, got '{chosen}'")
    operator.check_refactor(chosen)
    if swapped and operator.arity != 2:
        raise ConfigError(f"'{text}': operator '{operator.name}' has one parent, so nothing can be swapped")
    operator.check_strength(strength)
    return Variant(" ".join([operator.name, *words]), operator, strength, chosen or refactor, swapped)


def load_settings(path: Path) -> RetentionConfig:
    """Read and check a TOML file. Raises `ConfigError`."""
    config: RetentionConfig = load_config(path, RetentionConfig)
    check_settings(config)
    return config


def check_settings(config: RetentionConfig) -> None:
    """Raise `ConfigError` for the first impossible value."""
    positive = ("retrain_steps", "parent_prompts", "prompts", "initial_problems", "window", "checkpoint_every")
    drawn = max(config.prompts, config.parent_prompts, config.initial_problems)
    conditions = [
        *((name, getattr(config, name) >= 1, "1 or more") for name in positive),
        ("seeds", 1 <= len(config.seeds) == len(set(config.seeds)), "distinct numbers"),
        ("snapshots", len(set(config.snapshots)) == len(config.snapshots), "distinct steps"),
        ("repeated", config.repeated in config.snapshots, f"one of the snapshots {config.snapshots}"),
        ("snapshots", min(config.snapshots, default=0) >= 1, "steps from 1 on"),
        ("parents", set(config.parents) <= KNOWN, f"two of {', '.join(sorted(KNOWN))}, since this benchmark knows Python alone"),
        ("parents", config.parents[0] != config.parents[1], "different tasks"),
        ("prompts", config.prompts % 2 == 0, "an even number, half of it for each parent's task"),
        ("window", config.window <= config.retrain_steps, f"at most retrain_steps, {config.retrain_steps}"),
        ("pool", bool(config.problems) or config.pool >= drawn, "at least prompts, parent_prompts and initial_problems"),
        ("samples", config.samples >= 2, "2 or more, since advantages are centred in a prompt's samples"),
        ("recovered_share", 0 < config.recovered_share <= 1, "a share above 0"),
        ("margin", config.margin > 0, "a pass rate above 0"),
    ]
    for name, holds, expected in conditions:
        if not holds:
            raise ConfigError(f"retention: {name} is {getattr(config, name)}: expected {expected}")
    if config.lora.ranks:
        raise ConfigError("retention: lora.ranks is set: parents and children have one rank")
    for name in ("decay_steps", "teacher_learning_rate"):
        if getattr(config.learner, name):
            raise ConfigError(f"retention: learner.{name} is set: parents and children learn at one rate")
    check(config.run(0, 2))
    for child in config.children():
        if child.operator.min_rank > config.lora.rank and not child.strength:
            least = child.operator.min_rank
            raise ConfigError(f"retention: operator '{child.name}' needs lora.rank {least} or more, got {config.lora.rank}")
        _try(child, config.lora)


def _try(variant: Variant, lora: LoraConfig) -> None:
    """Breed from noise, before parents are trained. Raises `ConfigError` for a strength out of range."""
    plan = Lineage(variant.name, 1, 0, variant.operator.name, stream=("try",), strength=variant.strength, refactor=variant.refactor)
    try:
        breed([_noise(lora, seed) for seed in range(variant.arity)], plan, allow_copy=True)
    except ConfigError as error:
        raise ConfigError(f"retention: operator '{variant.name}': {error}") from error


def _noise(lora: LoraConfig, seed: int) -> Adapter:
    """Make an adapter of two small modules, which are named as those of a base: operators of others may read the names."""
    size, draws = 2 * lora.rank, torch.Generator().manual_seed(seed)
    modules = {
        f"model.layers.{layer}.self_attn.q_proj": (
            torch.randn(lora.rank, size, generator=draws),
            torch.randn(size, lora.rank, generator=draws),
        )
        for layer in range(2)
    }
    return Adapter(modules, lora.rank, lora.alpha)
