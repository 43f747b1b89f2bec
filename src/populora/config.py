"""Settings: frozen dataclasses with the paper's values as defaults (its Table 1; where it has none, the readings of docs/decisions.md).

TOML files and command-line flags change them; the resolved settings are written into the run directory. Unknown names
and impossible combinations are errors before any work starts (`load_config`, `check`).
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
import sys
import tomllib
import typing
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from populora.errors import ConfigError

AZR_BANNED_IMPORTS = (
    "logging", "random", "multiprocessing", "pebble", "subprocess", "threading", "datetime", "time", "hashlib", "hmac", "bcrypt",
    "os.sys", "os.path", "sys.exit", "os.environ", "calendar",
)  # fmt: skip


@dataclass(frozen=True)
class BaseConfig:
    """The frozen base model."""

    path: str = "tiny"
    """``tiny`` (ships in the package) or a folder / hub name that transformers can load."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    device: str = "cpu"
    prompts: Literal["compact", "azr"] = "compact"
    """Prompt set: ``compact`` for the tiny base, ``azr`` for real models."""


@dataclass(frozen=True)
class LoraConfig:
    """Adapters (paper: rank 32, alpha 64, attention projections)."""

    rank: int = 32
    alpha: float = 64.0
    targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj")
    ranks: tuple[int, ...] = ()
    """Ranks that differ by member, teachers first, none above ``rank``; all have the same alpha / rank. Empty: all have ``rank``."""


@dataclass(frozen=True)
class PopulationConfig:
    """Sizes of the two sub-populations, or the single agent of the baseline."""

    teachers: int = 4
    students: int = 4
    single_agent: bool = False
    """The AZR baseline: one adapter proposes and solves; ``teachers`` and ``students`` are ignored."""


@dataclass(frozen=True)
class SelfplayConfig:
    """One step's sampling (paper: 24 prompts of each type, n = 8, T = 1)."""

    prompts_per_type: int = 24
    samples_per_prompt: int = 8
    rho_samples: int = 8
    """Attempts per valid problem; their mean is rho (reading 3)."""
    max_prompt_tokens: int = 6144
    max_response_tokens: int = 8096
    buffer_size: int = 16384
    """Problems kept per task type; the oldest are dropped (reading 9)."""
    seeds: int = 256
    """Problems in the buffer before the first step."""
    overlap: Literal["reproducible", "eager", "off"] = "reproducible"
    """When students start on validated problems: at fixed calls of the sampler, so that equal seeds give equal bytes; as soon as they
    are validated; or when all proposals are."""


@dataclass(frozen=True)
class EngineConfig:
    """The in-process sampler."""

    rows: int = 512
    """Responses decoded at a time, at most."""
    cache_mb: int = 1024
    """Memory for the keys and values of the responses being decoded, MiB, their prompts not counted: fewer are decoded at a time where not
    all would fit, if each became as long as it may."""


@dataclass(frozen=True)
class TasksConfig:
    """Rules of the three tasks, after Absolute Zero (AZR)."""

    references: int = 0
    """Programs shown to a proposer of code_i and code_o (K); 0 takes the prompt set's number, 6 in ``azr`` and 1 in ``compact``."""
    code_f_inputs: int = 0
    """Inputs that a proposer of code_f gives; 0 takes the prompt set's number, 10 in ``azr`` and 6 in ``compact``."""
    code_f_split: Literal["seeded", "fixed"] = "seeded"
    """Which half of code_f's pairs is hidden: drawn anew for each problem, or always the last ones (AZR)."""
    extraction: Literal["strict", "lenient"] = "strict"
    """How an answer is found: in its fence, or else also in phrases such as "the input is" (AZR)."""
    equality: Literal["python", "strict"] = "python"
    """When two outputs are equal: Python's ``==`` (AZR), or with equal types."""
    banned_imports: tuple[str, ...] = AZR_BANNED_IMPORTS
    """Modules that a program may not import: a rule of the task, not a protection (that is the sandbox)."""


@dataclass(frozen=True)
class RewardConfig:
    """Eq. 1 and Eq. 2 of the paper."""

    correct: float = 1.0
    incorrect: float = -0.5
    malformed: float = -1.0
    invalid_proposal: float = -1.0
    boundary: float = 0.0
    """Teacher reward where rho is 0 and where it is 1: 0 in the paper, -0.5 in AZR's code (reading 1)."""


@dataclass(frozen=True)
class LearnerConfig:
    """REINFORCE++-baseline and AdamW, per adapter (readings 11 to 14)."""

    learning_rate: float = 5e-5
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    grad_clip: float = 1.0
    clip_low: float = 0.2
    clip_high: float = 0.28
    whitening: Literal["pooled", "per_type"] = "pooled"
    role_weights: Literal["tokens", "equal"] = "tokens"
    """What the single agent's two roles weigh in its loss: by their tokens (the paper's mean over the batch), or half each."""
    micro_batch_tokens: int = 16384
    old_logprobs: Literal["sampler", "recomputed"] = "sampler"
    """Old log-probabilities of the ratio: the sampler's own, or the learner's. A batch is one optimiser step, so with the learner's the
    ratio is 1 and nothing is clipped; what is left of the gap to the sampler is its importance weight."""
    tis_cap: float = 2.0
    """Token-level truncated importance sampling: where the learner's probability is more than this many times the sampler's, the
    token weighs as if it were this many."""
    max_kl: float = 0.1
    """Largest mean KL (nats a token) between sampler and learner of a member; beyond it the run stops."""
    min_ess: float = 0.5
    """Smallest effective sample size, as a share of a member's tokens, under the truncated importance weights learner / sampler."""
    activation_checkpointing: Literal["none", "mlp", "layer"] = "none"
    """What the backward computes again instead of keeping it: the MLPs (most of the memory), or whole layers."""


@dataclass(frozen=True)
class LeagueConfig:
    """TrueSkill and PFSP (readings 15 to 19)."""

    mu: float = 25.0
    sigma: float = 25.0 / 3.0
    beta: float = 25.0 / 6.0
    tau: float = 25.0 / 300.0
    outcome: Literal["expected", "threshold"] = "expected"
    threshold: float = 0.5
    pfsp_floor: float = 0.01


@dataclass(frozen=True)
class EvolutionConfig:
    """Replacement of the weakest (readings 20 to 26). ``every`` 0 turns evolution off."""

    every: int = 10
    cull_fraction: float = 0.25
    lcb_k: float = 1.0
    child_sigma: float = 25.0 / 12.0
    operators: tuple[str, ...] = ("m1", "m2", "m3", "m4", "x1", "x2", "x3", "x4")
    refactor: Literal["revive", "balanced"] = "revive"
    """How operators split a child's singular values: ``balanced`` (paper) leaves masked components dead for ever."""
    keep_parents: bool = True
    """Keep what children were bred from, so that `populora replay` can breed them again: one adapter a parent, in fp32."""


@dataclass(frozen=True)
class SandboxConfig:
    """The verifier's limits; seconds and MiB."""

    workers: int = 2
    cpu_seconds: float = 2.0
    wall_seconds: float = 10.0
    memory_mb: int = 1024
    max_output_chars: int = 400
    """A program whose output is longer is rejected, not cut."""
    allow_weak: bool = False
    """Run without system-call filters where the machine has none: a program can then do what your user can."""


@dataclass(frozen=True)
class EvaluationConfig:
    """Held-out evaluation of every solver inside training; ``every`` 0 turns it off."""

    every: int = 0
    problems_per_type: int = 32


@dataclass(frozen=True)
class Config:
    """All settings of a run."""

    seed: int = 0
    steps: int = 200
    threads: int = 0
    """CPU threads for torch; 0 leaves torch's own choice."""
    checkpoint_every: int = 1
    keep_checkpoints: int = 2
    base: BaseConfig = field(default_factory=BaseConfig)
    lora: LoraConfig = field(default_factory=LoraConfig)
    population: PopulationConfig = field(default_factory=PopulationConfig)
    selfplay: SelfplayConfig = field(default_factory=SelfplayConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    tasks: TasksConfig = field(default_factory=TasksConfig)
    rewards: RewardConfig = field(default_factory=RewardConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    league: LeagueConfig = field(default_factory=LeagueConfig)
    evolution: EvolutionConfig = field(default_factory=EvolutionConfig)
    sandbox: SandboxConfig = field(default_factory=SandboxConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)


def field_names(kind: type = Config, prefix: str = "") -> list[str]:
    """Dotted names of all leaf settings, in order of declaration."""
    names: list[str] = []
    for item in dataclasses.fields(kind):
        inner = typing.get_type_hints(kind)[item.name]
        nested = isinstance(inner, type) and dataclasses.is_dataclass(inner)
        names += field_names(inner, f"{prefix}{item.name}.") if nested else [prefix + item.name]
    return names


def from_mapping(values: dict[str, Any], kind: type = Config, prefix: str = "", known: Sequence[str] = ()) -> Any:
    """Settings from nested plain values (TOML or JSON). Raises `ConfigError` for unknown names and wrong types; ``known`` are the dotted
    names of all that there are, those of ``kind`` by default."""
    hints, known = typing.get_type_hints(kind), known or field_names(kind)
    chosen = {}
    for name, value in values.items():
        if name not in hints:
            raise ConfigError(unknown_setting(prefix + name, known))
        if dataclasses.is_dataclass(hints[name]):
            if not isinstance(value, dict):
                raise ConfigError(f"setting '{prefix}{name}': expected a table of settings, got {value!r}")
            chosen[name] = from_mapping(value, hints[name], f"{prefix}{name}.", known)
        else:
            chosen[name] = _typed(value, hints[name], prefix + name)
    return kind(**chosen)


DROPOUT = "unknown setting 'lora.dropout': with dropout the learner would train another policy than the one that sampled. Leave it out."


def unknown_setting(name: str, known: Sequence[str]) -> str:
    """Error text for a setting that is not among the ``known`` ones, with the nearest of them."""
    if name == "lora.dropout":
        return DROPOUT
    leaf_of = {one.rsplit(".", 1)[-1]: one for one in known}
    near = difflib.get_close_matches(name, known, n=2, cutoff=0.6)
    near += [leaf_of[leaf] for leaf in difflib.get_close_matches(name.rsplit(".", 1)[-1], leaf_of, n=2, cutoff=0.7)]
    hint = f" Did you mean {' or '.join(repr(item) for item in dict.fromkeys(near))}?" if near else ""
    return f"unknown setting '{name}'.{hint} `populora train --help` lists the settings of a run."


def _typed(value: Any, kind: Any, name: str) -> Any:
    origin = typing.get_origin(kind)
    if origin is Literal:
        if value not in typing.get_args(kind):
            raise ConfigError(f"setting '{name}': expected one of {', '.join(map(repr, typing.get_args(kind)))}, got {value!r}")
        return value
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise ConfigError(f"setting '{name}': expected a list, got {value!r}")
        inner = typing.get_args(kind)
        kinds = [inner[0]] * len(value) if inner[-1] is Ellipsis else list(inner)
        if len(kinds) != len(value):
            raise ConfigError(f"setting '{name}': expected {len(kinds)} values, got {len(value)}")
        return tuple(_typed(item, part, name) for item, part in zip(value, kinds, strict=True))
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value) if abs(value) <= sys.float_info.max else math.inf  # `check` refuses it by name
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ConfigError(f"setting '{name}': expected {kind.__name__}, got {value!r} ({type(value).__name__})")
    return value


def load_config(path: Path) -> Config:
    """Settings from a TOML file. Raises `ConfigError`."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"cannot read the configuration '{path}': {error.strerror}. The repository's configs/ has some to start from."
        ) from error
    try:
        return from_mapping(tomllib.loads(content.decode()))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"'{path}' is not valid TOML: {error}") from error


def to_mapping(config: Any) -> dict[str, Any]:
    """Nested plain values (for JSON); `from_mapping` reads them back."""
    return dataclasses.asdict(config)


def check(config: Config) -> None:
    """Raise `ConfigError` for the first impossible value or combination."""
    for name in field_names():
        value = _value(config, name)
        if any(isinstance(part, float) and not math.isfinite(part) for part in (value if isinstance(value, tuple) else (value,))):
            raise ConfigError(f"setting '{name}': expected a finite number, got {value}")
    for holds, message in _conditions(config):
        if not holds:
            raise ConfigError(message)


AT_LEAST_ONE = "a population needs at least one teacher and one student (or population.single_agent = true)"
POSITIVE = (
    "steps", "checkpoint_every", "keep_checkpoints", "lora.rank", "lora.alpha", "selfplay.prompts_per_type",
    "selfplay.samples_per_prompt", "selfplay.rho_samples", "selfplay.max_prompt_tokens", "selfplay.max_response_tokens",
    "selfplay.seeds", "engine.rows", "engine.cache_mb", "learner.learning_rate", "learner.epsilon", "learner.grad_clip",
    "learner.micro_batch_tokens", "league.sigma",
    "league.beta", "evolution.child_sigma", "sandbox.workers", "sandbox.cpu_seconds", "sandbox.wall_seconds", "sandbox.memory_mb",
    "sandbox.max_output_chars", "evaluation.problems_per_type",
)  # fmt: skip
NOT_NEGATIVE = (
    "threads", "learner.weight_decay", "learner.clip_low", "learner.clip_high", "learner.max_kl", "learner.min_ess",
    "league.tau", "league.pfsp_floor", "evolution.every", "evolution.lcb_k", "evaluation.every", "tasks.references", "tasks.code_f_inputs",
)  # fmt: skip


def _value(config: Config, name: str) -> Any:
    return functools.reduce(getattr, name.split("."), config)


def _members(population: PopulationConfig) -> int:
    return 1 if population.single_agent else population.teachers + population.students


def _conditions(c: Config) -> list[tuple[bool, str]]:
    p, s, e, n = c.population, c.selfplay, c.evolution, c.learner
    conditions = [(_value(c, name) > 0, f"setting '{name}': expected more than 0, got {_value(c, name)}") for name in POSITIVE]
    conditions += [(_value(c, name) >= 0, f"setting '{name}': expected 0 or more, got {_value(c, name)}") for name in NOT_NEGATIVE]
    longest = s.max_prompt_tokens + s.max_response_tokens
    conditions += [
        (abs(c.seed) < 2**63, f"seed is {c.seed}: expected a number of 64 bits"),
        (p.single_agent or p.teachers >= 1, f"population.teachers is {p.teachers}: {AT_LEAST_ONE}"),
        (p.single_agent or p.students >= 1, f"population.students is {p.students}: {AT_LEAST_ONE}"),
        (0 <= e.cull_fraction < 1, f"evolution.cull_fraction is {e.cull_fraction}: expected 0 <= cull_fraction < 1"),
        (all(0 <= beta < 1 for beta in n.betas), f"learner.betas is {n.betas}: expected two values from 0 to below 1"),
        (n.micro_batch_tokens >= longest,
         f"learner.micro_batch_tokens {n.micro_batch_tokens} is smaller than one row of selfplay's limits, {longest}"),
        (0 <= c.league.threshold <= 1, f"league.threshold is {c.league.threshold}: expected a solve rate from 0 to 1"),
        (e.every == 0 or bool(e.operators), "evolution.operators is empty: name at least one operator or set evolution.every = 0"),
        (s.buffer_size >= s.seeds, f"selfplay.buffer_size {s.buffer_size} is smaller than selfplay.seeds {s.seeds}"),
        (not c.lora.ranks or len(c.lora.ranks) == _members(p), f"lora.ranks has {len(c.lora.ranks)} values for {_members(p)} members"),
        (all(1 <= rank <= c.lora.rank for rank in c.lora.ranks), f"lora.ranks is {c.lora.ranks}: expected 1 to lora.rank, {c.lora.rank}"),
        (not e.every or p.single_agent or all(len(set(own)) < 2 for own in (c.lora.ranks[: p.teachers], c.lora.ranks[p.teachers :])),
         f"lora.ranks is {c.lora.ranks}: evolution breeds within a role, whose members need one rank; set evolution.every = 0"),
        (bool(c.lora.targets), "lora.targets is empty: name at least one linear module, such as 'q_proj'"),
        (c.tasks.code_f_inputs != 1, "tasks.code_f_inputs is 1: expected at least 2 (half of them are hidden), or 0 for the prompt set's"),
        (all(word.isascii() and word.strip() for word in c.tasks.banned_imports),
         f"tasks.banned_imports is {c.tasks.banned_imports}: expected names of modules"),
        (n.tis_cap >= 1, f"learner.tis_cap is {n.tis_cap}: expected 1 or more"),
        (n.min_ess <= 1, f"learner.min_ess is {n.min_ess}: expected a share from 0 to 1"),
        (n.clip_low < 1, f"learner.clip_low is {n.clip_low}: expected less than 1"),
    ]  # fmt: skip
    return conditions
