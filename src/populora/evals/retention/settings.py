"""Settings of the retention benchmark, with the paper's grid as defaults: snapshots at steps 5, 10, 25, 50 and 100, and 50 steps of
retraining. The paper names neither tasks nor batches and shows one seed; those are ours.
"""

from __future__ import annotations

import tomllib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from populora.adapters.operators import OPERATORS
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
from populora.core.config_file import from_mapping
from populora.core.errors import ConfigError
from populora.evals.retention.variants import Variant, read_variant

TaskName = Literal["code_i", "code_o", "code_f"]
CONTROLS = {1: "copy_parent", 2: "linear_0_5"}
"""What a child of so many parents is measured against."""


@dataclass(frozen=True)
class RetentionConfig:
    """The grid, how the adapters are trained, and the settings of a run that bear on it."""

    seeds: tuple[int, ...] = (0, 1, 2)
    """Each seed has parents, children and problems of its own. All of them at ``repeated``, the first at every snapshot."""
    snapshots: tuple[int, ...] = (5, 10, 25, 50, 100)
    repeated: int = 25
    """The snapshot that intervals over seeds are made at."""
    retrain_steps: int = 50
    parents: tuple[TaskName, TaskName] = ("code_o", "code_f")
    """What the two parents are trained on: mutations take the first, crossovers both."""
    operators: tuple[str, ...] = tuple(OPERATORS)
    """By name or alias, with other strengths where wanted: ``"x4"``, ``"x4 swapped"``, ``"m1 epsilon=0"`` (`variants`).
    The controls are always among them."""
    refactor: Refactor = "revive"
    """How operators split a child's singular values (`populora.adapters.svd`)."""
    parent_prompts: int = 16
    """Problems of a parent's step: parents are few, and the more they learn, the more there is to lose."""
    prompts: int = 8
    """Problems of a child's step; a child of two parents has half of each task."""
    samples: int = 8
    birth_problems: int = 24
    """Problems of each of its tasks that every pupil attempts before it is trained: what an operator costs at once."""
    problems: str = ""
    """JSON Lines file of problems that every seed draws from; empty: the 96 of each task that ship with the benchmark."""
    pool: int = 24
    """Shipped problems of each task that a seed has for itself; its parents and children draw from them in every step."""
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
        """Settings of a run whose members are ``slots`` solvers (one of them is called a teacher: a run has to have one)."""
        limits = SelfplayConfig(max_prompt_tokens=self.max_prompt_tokens, max_response_tokens=self.max_response_tokens)
        return Config(
            seed=seed, threads=self.threads, base=self.base, lora=self.lora, engine=self.engine, tasks=self.tasks,
            rewards=self.rewards, learner=self.learner, sandbox=self.sandbox, selfplay=limits,
            population=PopulationConfig(teachers=1, students=slots - 1), evolution=EvolutionConfig(every=0),
        )  # fmt: skip

    def children(self) -> list[Variant]:
        """What is bred in each cell, controls included, each once, mutations first. Raises `ConfigError`."""
        found = [read_variant(text, self.refactor) for text in (*self.operators, *CONTROLS.values())]
        return sorted({one.name: one for one in found}.values(), key=lambda one: one.arity)

    def cells(self) -> list[tuple[int, int]]:
        """(seed, snapshot) of each part of the grid: the repeated ones first, for the verdicts rest on them."""
        return [(seed, self.repeated) for seed in self.seeds] + [(self.seeds[0], s) for s in self.snapshots if s != self.repeated]


def load_settings(path: Path) -> RetentionConfig:
    """Settings from a TOML file. Raises `ConfigError`."""
    try:
        return from_mapping(tomllib.loads(path.read_bytes().decode()), RetentionConfig)
    except OSError as error:
        raise ConfigError(
            f"cannot read the settings '{path}': {error.strerror}; `populora init retention` writes one to start from"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"'{path}' is not valid TOML: {error}") from error


def check_settings(config: RetentionConfig) -> None:
    """Raise `ConfigError` for the first impossible value."""
    positive = ("retrain_steps", "parent_prompts", "prompts", "samples", "birth_problems", "window", "checkpoint_every")
    conditions = [(getattr(config, name) >= 1, f"{name} is {getattr(config, name)}: expected 1 or more") for name in positive]
    conditions += [
        (len(config.seeds) >= 1 and len(set(config.seeds)) == len(config.seeds), f"seeds is {config.seeds}: expected distinct numbers"),
        (len(set(config.snapshots)) == len(config.snapshots), f"snapshots is {config.snapshots}: expected distinct steps"),
        (config.repeated in config.snapshots, f"repeated is {config.repeated}: expected one of the snapshots {config.snapshots}"),
        (min(config.snapshots, default=0) >= 1, f"snapshots is {config.snapshots}: expected steps from 1 on"),
        (config.parents[0] != config.parents[1], f"parents is {config.parents}: they need different tasks"),
        (config.prompts % 2 == 0, f"prompts is {config.prompts}: expected an even number, half of it for each parent's task"),
        (config.window <= config.retrain_steps, f"window is {config.window}: expected at most retrain_steps, {config.retrain_steps}"),
        (
            bool(config.problems) or config.pool >= max(config.prompts, config.parent_prompts, config.birth_problems),
            f"pool is {config.pool}: expected at least prompts, parent_prompts and birth_problems, which are drawn from it",
        ),
        (config.samples >= 2, f"samples is {config.samples}: expected 2 or more, for advantages are centred in a prompt's samples"),
        (0 < config.recovered_share <= 1, f"recovered_share is {config.recovered_share}: expected a share above 0"),
        (config.margin > 0, f"margin is {config.margin}: expected a pass rate above 0"),
        (not config.lora.ranks, "lora.ranks is set: parents and children have one rank"),
    ]
    for holds, message in conditions:
        if not holds:
            raise ConfigError(f"retention: {message}")
    check(config.run(0, 2))
    for one in config.children():
        if one.operator.min_rank > config.lora.rank and not one.strength:
            raise ConfigError(f"retention: operator '{one.name}' needs lora.rank {one.operator.min_rank} or more, got {config.lora.rank}")


def plain(config: RetentionConfig) -> dict:
    """Nested plain values, as JSON gives them back."""
    return asdict(config)
