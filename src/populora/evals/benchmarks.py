"""The registry of benchmarks: the paper's ten (section 5.1), CRUXEval, and the tiny base's held-out suite, with their data and graders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from populora.core.errors import ConfigError, did_you_mean

Group = Literal["code", "math", "cruxeval", "tiny"]
Grading = Literal["code", "mathematics", "cruxeval", "livecodebench", "selfplay"]


@dataclass(frozen=True)
class Benchmark:
    """One benchmark. ``sha256`` is empty where the user's data cannot be pinned."""

    name: str
    title: str
    """Its column in the paper's downstream table."""
    group: Group
    grading: Grading
    items: int
    id_field: str
    """Field of an item's name; items without it are named by their line number, from 0."""
    template: str
    """Default prompt template (`populora.evals.prompts`)."""
    max_tokens: int
    """Longest response, as in AZR's evaluation; 0 means the run's limit."""
    primary: str
    """The extraction mode (`Grade.modes`) that the score counts."""
    file: str = ""
    sha256: str = ""
    source: str = ""
    """Source of the file: ``owner/repository@commit:path`` of a public Git repository."""


_AZR = "LeapLabTHU/Absolute-Zero-Reasoner@a82124e514e27692aa9860c5ee21dbf9d81e3bc5:evaluation/math_eval/eval/data"


def _math(name: str, title: str, items: int, id_field: str, sha256: str) -> Benchmark:
    source = f"{_AZR}/{name}/test.jsonl"
    return Benchmark(name, title, "math", "mathematics", items, id_field, "azr_math", 16000, "lenient", f"{name}.jsonl", sha256, source)


BENCHMARKS = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark(
            "humaneval_plus", "HE+", "code", "code", 164, "task_id", "evalplus_chat", 768, "lenient", "humaneval_plus.jsonl",
            "42526ec0e7d5f3ee0b06d6ced98f8c8bae3d76519151bfb3d36f79010645bd7f",
            "evalplus/humanevalplus_release@200defce9e3429d28ca215b6dd061c0f7f31c18b:HumanEvalPlus.jsonl.gz",
        ),
        Benchmark(
            "mbpp_plus", "MBPP+", "code", "code", 378, "task_id", "evalplus_chat", 768, "lenient", "mbpp_plus.jsonl",
            "b54e762755248ca411b523c917fa9f93c07b5ff2966bf60b3917b853926a3dad",
            "evalplus/mbppplus_release@dadf43da556a00f7bacd71cb154f2932757d9144:MbppPlus.jsonl.gz",
        ),
        Benchmark(
            "livecodebench", "LCB", "code", "livecodebench", 880, "question_id", "azr_livecodebench", 8096, "lenient", "livecodebench",
        ),
        _math("aime24", "AIME24", 30, "id", "af2b8bd2aa911b6333ad0df32f3ca05c7ae8ed10f1731f4372c8ae26990bf7ac"),
        _math("aime25", "AIME25", 30, "id", "20c1ca392758d96bd1e28af15d9f30df5660257927cacc9eac7301c29f677d1a"),
        _math("amc23", "AMC", 40, "id", "43707e1ca784602d8479de24ee8ce36609dbebc46dd152b0b12a46611aa898a4"),
        _math("math500", "M-500", 500, "unique_id", "35dc41080a3680858b27fa7e0533d2d547825316fc5dafe5d316f4ccc5a06132"),
        _math("minerva_math", "Min.", 272, "idx", "0e656b430d3a0a1dab6aa853f453ba3805e28e2cabe4fc72486a897cc09d8ba2"),
        _math("gsm8k", "GSM", 1319, "idx", "9f098df7ff4522078d6ccec27a5c38a454790fdb51131bedfaa0e490070d5394"),
        _math("olympiadbench", "Oly.", 675, "id", "bb8c1e38a16ea9eacb77530315a674d883f267fbff79183effc53681b4fcc416"),
        *(
            Benchmark(
                f"cruxeval_{mode}", f"CRUX-{mode[0].upper()}", "cruxeval", "cruxeval", 800, "id", "solve", 8096, "lenient",
                "cruxeval.jsonl",
                "8368b81047dc5014e4caf5a2f97604eff7644e0ecd7415e3ceeb184bbc2e0c96",
                "facebookresearch/cruxeval@190faf16d175b5847b0af05d937872b1fb395942:data/cruxeval.jsonl",
            )
            for mode in ("input", "output")
        ),
        Benchmark(
            "tiny", "tiny", "tiny", "selfplay", 648, "id", "solve", 0, "strict", "held_out.jsonl",
            "7e4d945ea0a578c279f879d5e17818ca41e9bb4f3c85573b685d1ece873b5f9a",
        ),
    )
}  # fmt: skip
"""By name, in the order of the paper's table."""

FIELDS: dict[Grading, tuple[str, ...]] = {
    "code": ("task_id", "prompt", "entry_point", "canonical_solution", "base_input", "plus_input", "atol"),
    "cruxeval": ("code", "input", "output"),
    "selfplay": ("id", "task", "program", "shown"),
    "livecodebench": (),  # `populora.evals.graders.livecodebench` reads it
    "mathematics": (),  # they differ, and the grader names what it misses
}
"""Fields that an item must have to be graded."""

GROUPS: tuple[Group, ...] = ("code", "math", "cruxeval", "tiny")

_ALIASES = {
    "humaneval": "humaneval_plus", "humanevalplus": "humaneval_plus", "mbpp": "mbpp_plus", "mbppplus": "mbpp_plus", "lcb": "livecodebench",
    "minerva": "minerva_math", "olympiad": "olympiadbench", "math_500": "math500", "aime_24": "aime24", "aime_25": "aime25",
    "amc_23": "amc23", "amc": "amc23", "cruxeval_i": "cruxeval_input", "cruxeval_o": "cruxeval_output",
}  # fmt: skip


def benchmark(name: str) -> Benchmark:
    """Find the benchmark by any usual spelling of its name (``HumanEval+``, ``cruxeval-o``). Raises `ConfigError`."""
    plain = name.lower().replace("-", "_").replace("+", "_plus")
    plain = _ALIASES.get(plain, plain)
    if plain not in BENCHMARKS:
        raise ConfigError(f"unknown benchmark '{name}': expected one of {', '.join(BENCHMARKS)}.{did_you_mean(plain, BENCHMARKS, n=2)}")
    return BENCHMARKS[plain]


def suite(names: Sequence[str]) -> list[Benchmark]:
    """Select benchmarks by groups (``code``, ``math``, …) and names, in the table's order. Raises `ConfigError`."""
    selected: set[str] = set()
    for name in names:
        try:
            selected |= {item.name for item in BENCHMARKS.values() if item.group == name} or {benchmark(name).name}
        except ConfigError as error:
            raise ConfigError(f"{error} Groups of them are {', '.join(GROUPS)}.") from error
    return [item for item in BENCHMARKS.values() if item.name in selected]
