"""The vocabulary of populora: frozen dataclasses and named tuples that every layer shares.

Program text, inputs and outputs are model text: they are carried as strings and never evaluated outside the sandbox.
In Python inputs are the argument list without its parentheses (``[1, 2], 3``), outputs are literals (``[1, 2]``).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple, Self, cast


class Kind(StrEnum):
    """The three kinds of task of Absolute Zero (paper, section 2), whatever the language of the programs."""

    INPUT = "i"
    """Infer an input: program and output are given."""
    OUTPUT = "o"
    """Infer the output: program and input are given."""
    PROGRAM = "f"
    """Infer the program: half of the input/output pairs and a message are given."""


class TaskType(str):
    """A kind of task in one domain, ``<domain>_<kind>``, such as ``sql_i``. Those of Python are the paper's ``code_i``, ``code_o`` and
    ``code_f``. Equal types are one object. Raises ``ValueError`` for other names.
    """

    CODE_I: ClassVar["TaskType"]
    CODE_O: ClassVar["TaskType"]
    CODE_F: ClassVar["TaskType"]
    domain: str
    kind: Kind

    _types: ClassVar[dict[str, "TaskType"]] = {}

    def __new__(cls, name: str) -> "TaskType":
        if name not in cls._types:
            if not re.fullmatch(r"[a-z][a-z0-9]{0,19}_[iof]", name):
                raise ValueError(f"expected a task type such as 'code_i' or 'sql_o', got {name!r}")
            task = super().__new__(cls, name)
            prefix, _, kind = name.partition("_")
            if prefix == "python":
                raise ValueError(f"the task types of Python are code_i, code_o and code_f, got {name!r}")
            task.domain, task.kind = "python" if prefix == "code" else prefix, Kind(kind)
            cls._types[str(name)] = task
        return cls._types[name]

    def __reduce__(self) -> tuple[type["TaskType"], tuple[str]]:
        return TaskType, (str(self),)


def task_types(domains: Iterable[str]) -> tuple[TaskType, ...]:
    """Return the task types of these domains in order, three of each."""
    prefixes = ("code" if domain == "python" else domain for domain in domains)
    return tuple(TaskType(f"{prefix}_{kind}") for prefix in prefixes for kind in Kind)


CODE_TYPES = task_types(["python"])
"""The paper's task types."""
TaskType.CODE_I, TaskType.CODE_O, TaskType.CODE_F = CODE_TYPES


class Role(StrEnum):
    """The role of a member."""

    TEACHER = "teacher"
    STUDENT = "student"
    AGENT = "agent"
    """The single agent of the baseline: proposes and solves."""


class VerdictKind(StrEnum):
    """Outcome of running one untrusted program or parsing one answer. Only ``OK`` carries values."""

    OK = "ok"
    ERROR = "error"
    TIMEOUT = "timeout"
    BLOCKED = "blocked"
    REJECTED_NONDETERMINISTIC = "rejected_nondeterministic"
    INTERNAL = "internal"
    """The sandbox failed: retried, then `SandboxFault`. It never decides a reward."""


@dataclass(frozen=True)
class Example:
    """One input/output pair of a program, both in the canonical text of their domain (in Python, literals)."""

    inputs: str
    output: str


@dataclass(frozen=True)
class Problem:
    """A validated problem. Kinds ``i`` and ``o`` have one shown example; kind ``f`` has shown and hidden ones.

    ``id`` is unique in a run; ``author`` is the member id that proposed it (``"seed"`` for seeds).
    """

    id: str
    task: TaskType
    program: str
    shown: tuple[Example, ...]
    hidden: tuple[Example, ...] = ()
    message: str = ""
    author: str = ""
    step: int = 0


@dataclass(frozen=True)
class Request:
    """One prompt to sample from: ``samples`` responses under the adapter in ``slot`` (``-1``: the bare base).

    ``key`` names the random stream of the request, so scheduling cannot change which numbers it draws. Requests of different slots
    may have one key: adapters that are compared then draw the same numbers.
    """

    prompt: str
    slot: int
    samples: int
    key: tuple[str | int, ...]
    seed: int | None = field(default=None, kw_only=True)
    """The seed of that stream, if it is not the run's."""


@dataclass(frozen=True)
class Generation:
    """One sampled response.

    ``tokens`` are the sampled ids including the stop token if the model stopped; ``logprobs`` has one value (nats,
    temperature 1) for each of them, under the adapter that sampled. ``stopped`` is false when the length limit cut it.

    A step of a thousand members has half a billion tokens, so samplers give `array.array` of 4 bytes a value (``"i"``, ``"f"``): a tuple
    takes ten times that. These are equal by value, and go to another process as bytes.
    """

    text: str
    prompt_tokens: Sequence[int]
    tokens: Sequence[int]
    logprobs: Sequence[float] = field(repr=False)
    entropy: float
    """Mean entropy (nats) of the distributions the tokens were drawn from."""
    stopped: bool = True


@dataclass(frozen=True)
class Measures:
    """The complexity of a program, by the four metrics of its domain in their order, and the SHA-256 of the program's normal form."""

    values: tuple[int, ...]
    fingerprint: str


class Proposal(NamedTuple):
    """One response of a proposer and the result of its validation: a ``problem`` with its ``measures``, or a ``rejection``."""

    author: str
    task: TaskType
    group: int
    """Index of the prompt within the author's step: samples of one prompt form a group (for centring)."""
    generation: Generation
    formatted: bool
    problem: Problem | None
    rejection: str = ""
    """Name of the reason, empty for a valid problem."""
    measures: Measures | None = None


class Attempt(NamedTuple):
    """One response of a solver to a problem and its grading. ``formatted`` is the think/answer format check. A step has a hundred thousand,
    so it is no dataclass.

    ``void``: the problem's gold value did not reproduce when it was computed again, so neither side gets a reward."""

    student: str
    problem: Problem
    generation: Generation
    formatted: bool
    correct: bool
    reason: str = ""
    void: bool = False
    from_buffer: bool = False
    """The problem fills the student's batch from the buffer: not counted for teacher reward or ratings."""
    lenient: bool = False
    """The answer is outside the required fence and is graded only with ``tasks.extraction = "lenient"``."""


@dataclass(frozen=True)
class Rating:
    """TrueSkill belief about one member."""

    mu: float = 25.0
    sigma: float = 25.0 / 3.0


@dataclass(frozen=True)
class Matchup:
    """One teacher against one student in one step. ``outcome`` names the winner, ``"student"`` or ``"teacher"``. With ``"neither"`` the
    teacher loses and nobody wins, and ``"none"`` is no game."""

    teacher: str
    student: str
    expected: float
    """Predicted probability that the student wins. With ``league.unsolved = "teacher"`` it settles at mean rho."""
    mean_rho: float | None = None
    outcome: str = "none"


@dataclass(frozen=True)
class Lineage:
    """The origin of an adapter. Together with its parents' weights it is enough to breed the adapter again."""

    member: str
    generation: int = 0
    born: int = 0
    """Step after whose update the member was born; 0 for the initial population, and outside a run."""
    operator: str = "init"
    parents: tuple[str, ...] = ()
    """Fingerprints of the parents' adapters at birth, preceded by their names: ``"T1#0:<sha256>"``."""
    stream: tuple[str | int, ...] = ()
    """Name of the random stream that bred it, under ``seed``."""
    norm_ratio: float = 1.0
    cosines: tuple[float, ...] = ()
    effective_rank: float = 0.0
    """Distance of the child from its parents at birth: norm ratio, cosines to each parent, effective rank."""
    basis_cosine: float | None = None
    """Cosine between all A of the two parents: near 1 in a common basis. None with one parent."""
    strength: dict[str, float | str] = field(default_factory=dict[str, float | str])
    """All strengths of the operator, defaults among them."""
    refactor: str = ""
    seed: int = 0
    fingerprint: str = ""
    """Fingerprint of the child's own adapter at birth."""

    @property
    def name(self) -> str:
        """Member and generation, such as ``T1#0``: no two adapters of a run have the same."""
        return f"{self.member}#{self.generation}"

    @property
    def parent_names(self) -> tuple[str, ...]:
        """The parents without their fingerprints."""
        return tuple(parent.rpartition(":")[0] for parent in self.parents)

    @classmethod
    def from_plain(cls, values: Mapping[str, Any]) -> Self:
        """Build a lineage from JSON, where tuples are lists. Raises ``TypeError`` for unknown fields."""
        fields: dict[str, Any] = {
            name: tuple(cast(list[Any], value)) if isinstance(value, list) else value for name, value in values.items()
        }
        return cls(**fields)


@dataclass(frozen=True)
class Member:
    """One adapter of the population: id (``T0``, ``S3``, ``A0``), role, slot in the bank, rating and lineage.

    The id names the *place*; ``lineage.generation`` counts how often it was replaced.
    """

    id: str
    role: Role
    slot: int
    rating: Rating
    lineage: Lineage
    protected_until: int = 0
    """A newborn is not culled at or before this step."""


@dataclass(frozen=True)
class UpdateStats:
    """Statistics of one update of one slot; means are over its response tokens. A ``skipped`` slot had no advantage to learn from."""

    loss: float = 0.0
    grad_norm: float = 0.0
    """Before clipping."""
    entropy: float = 0.0
    clip_fraction: float = 0.0
    kl: float = 0.0
    """Between sampler and learner."""
    ess: float = 1.0
    """Effective sample size under the truncated importance weights learner / sampler, as a share of the tokens."""
    mean_difference: float = 0.0
    """Mean of |log-probability in the learner - in the sampler|, nats."""
    max_difference: float = 0.0
    """The largest of these differences."""
    tokens: int = 0
    skipped: bool = False
    outliers: float = field(default=0.0, kw_only=True)
    """Share of the tokens with a difference that rounding does not explain: a hundred times the bound of the mean."""
    base_kl: float | None = None
    """Estimate of KL(member || base) in nats a token; None if ``learner.base_kl`` is 0."""
