"""The declaration of a domain: all that the trainer knows about a language of programs. Data, and a few pure functions of texts."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from populora.core.config import TasksConfig
from populora.core.errors import ConfigError
from populora.core.types import Example, TaskType, task_types
from populora.sandbox.runner import Runner

AXES = 4
"""Number of metrics of a domain: the coverage archive of the paper has four axes."""
TAKEN = frozenset(
    "step author task group text prompt_tokens response_tokens stopped entropy mean_logprob formatted valid rejection problem_id rho "
    "reward advantage fingerprint repeat validity format_rate difficulty rho_zero rho_one response_length clipped duplicates "
    "zero_variance rejected rho_format_fail".split()
)
"""Names that no metric may have: columns of the proposals, and other measures of them in the log."""


@dataclass(frozen=True)
class Metric:
    """A measure of a program's complexity: a column of the records, a curve of the report, an axis of the archive."""

    name: str
    label: str
    """Such as ``cyclomatic complexity``."""
    low: float
    high: float
    """The range that the archive divides into cells; values outside count as its ends."""
    meaning: str = ""
    """What it counts, a sentence for the report's captions, such as ``Lines with code.``"""


OTHER_FENCES = ("input", "output", "message")
"""Languages of the fences that hold the other parts of a problem."""
_FENCE = re.compile(r"[a-z0-9+#._-]*")


@dataclass(frozen=True)
class Domain:
    """An executable language. Raises `ConfigError` if a part is not as described."""

    name: str
    """Lower case; its task types are ``<name>_i``, ``<name>_o`` and ``<name>_f``."""
    version: str
    """A run resumes only under the same version."""
    package: str
    """The Python package with the prompts: ``prompts/azr.toml``, and ``prompts/compact.toml`` for a tiny base."""
    runner: Runner
    fences: tuple[str, ...]
    """Languages of the fence that holds a program; an empty one is a fence without a language."""
    metrics: tuple[Metric, ...]
    """The four that the runner's ``measure`` returns, in its order."""
    identity: tuple[str, Example]
    """A simple program with an input and its output: what a base without seed problems starts from."""
    shown: tuple[str, ...]
    """Names of the metrics that the terminal shows: first the one that stands for a program's size."""
    one_line_inputs: bool = False
    """Refuse inputs of several lines."""
    call: str = "{inputs}"
    """How a program's input is printed: ``f({inputs})`` in Python."""
    lexer: str = "text"
    """The language's name for highlighting."""
    rules: Callable[[TasksConfig], tuple[str, ...]] = lambda tasks: ()
    """What programs may not use, in the words of the runner."""
    explain: Callable[[str, str], str] = lambda answer, expected: "wrong"
    """Name the reason why an answered output (text) is not the expected one (text)."""
    facts: Callable[[], Mapping[str, str]] = dict
    """Versions of what decides verdicts on this machine, such as a library of the runner. A run resumes only under the same ones."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9]{0,19}", self.name) or self.name == "code":
            raise ConfigError(f"domain name {self.name!r}: expected lower-case letters and digits, such as 'sql'")
        if self.runner.domain != self.name:
            raise ConfigError(f"domain '{self.name}': its runner is of '{self.runner.domain}'")
        if isinstance(self.fences, str) or not self.fences or any(not _FENCE.fullmatch(tag) or tag in OTHER_FENCES for tag in self.fences):
            raise ConfigError(
                f"domain '{self.name}': expected `fences` as a tuple of languages in lower case, such as ('sql',), none of them "
                f"{', '.join(OTHER_FENCES)}; got {self.fences!r}"
            )
        if len({metric.name for metric in self.metrics}) != AXES:
            raise ConfigError(f"domain '{self.name}': expected {AXES} different metrics, got {[metric.name for metric in self.metrics]}")
        if bad := [name for name in self.metric_names if name in TAKEN or not re.fullmatch(r"[a-z][a-z0-9_]{0,39}", name)]:
            raise ConfigError(f"domain '{self.name}', metric {bad[0]!r}: expected a name in lower case that no column of the records has")
        if not self.shown or not set(self.shown) <= set(self.metric_names):
            raise ConfigError(f"domain '{self.name}': expected names of its metrics in `shown`, got {self.shown}")
        for metric in self.metrics:
            if not metric.low < metric.high:
                raise ConfigError(f"domain '{self.name}', metric '{metric.name}': expected low below high, got {metric.low}, {metric.high}")

    @property
    def seeds(self) -> Path:
        """The file of the package with seed problems, for bases that have none of this domain. It need not exist."""
        return Path(str(files(self.package).joinpath("seeds.jsonl")))

    def fingerprint(self) -> str:
        """Return name, version and facts: ``sql 1 (sqlglot 30.0.0, sqlite 3.40.1)``."""
        facts = ", ".join(f"{name} {version}" for name, version in sorted(self.facts().items()))
        return f"{self.name} {self.version}{facts and f' ({facts})'}"

    def label(self, metric: str) -> str:
        """Return the label of one of the metrics."""
        return next(known.label for known in self.metrics if known.name == metric)

    @property
    def task_types(self) -> tuple[TaskType, ...]:
        return task_types([self.name])

    @property
    def metric_names(self) -> tuple[str, ...]:
        return tuple(metric.name for metric in self.metrics)


def fingerprint_of(domains: Iterable[Domain]) -> str:
    """Return the fingerprints of several domains, which a run compares at a resume and between machines."""
    return ", ".join(domain.fingerprint() for domain in domains)
