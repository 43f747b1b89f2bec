"""``populora evaluate generate WHAT…``: the completions of runs, adapters, a base or an endpoint on benchmarks, greedy, item by item."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from populora.commands.arguments import parse
from populora.commands.progress import counting
from populora.errors import ConfigError
from populora.evals.benchmarks import BENCHMARKS, Benchmark, suite
from populora.evals.data import MissingDataError, digest, find_data, load_items
from populora.evals.folder import Data, Description, write_description
from populora.evals.records import Item
from populora.evals.results import Source
from populora.runlog.checkpoint import checkpoint_steps
from populora.runlog.directory import free_folder, locked, processor, versions
from populora.runlog.files import disk_errors, step_folder

if TYPE_CHECKING:
    from populora.config import Config
    from populora.evals.asking import Paper
    from populora.evals.sources import Sources

SKIPPED = 3


@dataclass(frozen=True)
class Evaluate:
    """Judge members of a run, adapters or a base on benchmarks: greedy pass@1, as in the paper's downstream table.

    Besides: `populora evaluate generate` (completions only), `populora evaluate grade` (a folder, or completions of any origin),
    `populora evaluate table`, `populora evaluate compare`. docs/evaluation.md explains all of it.
    """

    what: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="RUN|ADAPTER|BASE")]
    """Run directories, PEFT folders, or bases (`tiny`, a folder, a hub name); with --endpoint the model's name there."""
    suite: str = ""
    """Groups (`code`, `math`, `cruxeval`, `tiny`) and single benchmarks, with commas. By default `tiny` for the tiny base, `code,math` for
    others."""
    members: str = "all"
    """Of a run: `all`, or names such as `T0,S1`; `base` is its bare base."""
    base: str = ""
    """Another place of the base that a run or an adapter names."""
    data: str = ""
    """Folder with the benchmarks' files, or hf://OWNER/NAME@COMMIT; by default each is downloaded from where it was published."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="DIR")] = None
    """Folder of the evaluation; by default in the run, by its step, or under `evaluations/`."""
    merge: bool = False
    """Merge each adapter into the base by PEFT in fp32, as the paper does, and check its logits; else adapters are served as they are."""
    templates: tuple[str, ...] = ()
    """Other prompt templates than the benchmarks' own, such as `code=plain` or `math500=azr_math_boxed`."""
    max_tokens: int = 0
    """Another longest response than each benchmark's own."""
    limit: int = 0
    """Only the first so many items of each benchmark, for a try: its score is shown as incomplete."""
    backend: Literal["", "inprocess", "vllm"] = ""
    """What samples; by default what the run sampled with."""
    device: str = ""
    """Such as `cuda:0`."""
    dtype: Literal["", "float32", "bfloat16"] = ""
    """Of the base's weights."""
    endpoint: str = ""
    """Address of an OpenAI-compatible API, such as http://localhost:8000/v1."""
    key_variable: str = "OPENAI_API_KEY"
    """Environment variable with the endpoint's key; empty if it takes none."""
    parallel: int = 4
    """Requests to the endpoint at a time."""
    chat: bool = False
    """Send raw prompts to the endpoint as a user's turn: it has no completions route."""
    workers: int = 2
    """Items that are graded at the same time."""
    allow_weak: bool = False
    """Grade on a machine without system-call filters: programs can then do what your user can."""
    published: bool = False
    """Lay the paper's table under ours."""


def parsed(arguments: Sequence[str], command: str) -> Evaluate:
    """The chosen settings. Raises `ConfigError`."""
    chosen = parse(Evaluate, arguments, command)
    for name in ("workers", "parallel"):
        if getattr(chosen, name) < 1:
            raise ConfigError(f"--{name} is {getattr(chosen, name)}: expected 1 or more")
    for name in ("limit", "max_tokens"):
        if getattr(chosen, name) < 0:
            raise ConfigError(f"--{name.replace('_', '-')} is {getattr(chosen, name)}: expected 1 or more, or 0 for no other than usual")
    if chosen.endpoint and len(chosen.what) != 1:
        raise ConfigError(f"with --endpoint expected the name of one model there, got {', '.join(chosen.what) or 'none'}")
    return chosen


def main(arguments: Sequence[str]) -> int:
    """Generate; returns 0, or 3 where something had to be skipped. Raises `PopuloraError`."""
    return generate_into(parsed(arguments, "evaluate generate"))[1]


def generate_into(chosen: Evaluate) -> tuple[Path, int]:
    """The folder with all completions, and 3 where a benchmark or a source had to be skipped, else 0. Raises `PopuloraError`."""
    names = chosen.suite.split(",") if chosen.suite else ["tiny"] if _is_tiny(chosen) else ["code", "math"]
    papers, data, skipped = _papers(suite([name.strip() for name in names]), chosen)
    if not papers:
        raise MissingDataError("; ".join(skipped.values()))
    out = chosen.out or _default_folder(chosen)
    with disk_errors(out, "create"):
        out.mkdir(parents=True, exist_ok=True)
    facts = {"versions": versions(), "machine": {"processor": processor(), "cores": os.cpu_count()}}
    with locked(out), counting("generating") as progress:

        def describe(sources: Sequence[Source], unfit: Mapping[str, str]) -> None:
            write_description(out, Description(out.name, tuple(sources), data, {**skipped, **unfit}, facts))

        def shown(benchmark: str, source: str, done: int, items: int) -> None:
            progress(done, items, f"{benchmark} {source}")

        unfit = _from_endpoint(chosen, papers, out, shown, describe) if chosen.endpoint else _sampled(chosen, papers, out, shown, describe)
    for name, reason in {**skipped, **unfit}.items():
        sys.stderr.write(f"populora evaluate: skipped {reason if name in reason else f'{name}: {reason}'}\n")
    sys.stderr.write(f"populora evaluate: completions are in {out}\n")
    return out, SKIPPED if skipped or unfit else 0


def _is_tiny(chosen: Evaluate) -> bool:
    if chosen.endpoint:
        return False
    from populora.evals.sources import find_sources

    return find_sources(chosen.what, chosen.members, chosen.base).config.base.path == "tiny"


def _papers(wanted: Sequence[Benchmark], chosen: Evaluate) -> tuple[list[Paper], dict[str, Data], dict[str, str]]:
    """What is asked, where it is from, and what cannot be had."""
    from populora.evals.asking import Paper

    templates = _templates(chosen.templates)
    papers, data, skipped = [], {}, {}
    for one in wanted:
        try:
            path = find_data(one, chosen.data)
        except MissingDataError as error:
            skipped[one.name] = str(error)
            continue
        items: Sequence[Item] = load_items(one, path)
        data[one.name] = Data(str(path.resolve()), digest(path.read_bytes()) if path.is_file() else "", len(items))
        template = templates.get(one.name) or templates.get(one.group) or ""
        papers.append(Paper(one, items[: chosen.limit or None], template, chosen.max_tokens))
    return papers, data, skipped


def _templates(pairs: Sequence[str]) -> dict[str, str]:
    known = {*BENCHMARKS, *(one.group for one in BENCHMARKS.values())}
    found = {name: template for name, _, template in (pair.partition("=") for pair in pairs)}
    for name, template in found.items():
        if name not in known or not template:
            raise ConfigError(f"--templates has '{name}={template}': expected BENCHMARK=TEMPLATE or GROUP=TEMPLATE, such as code=plain")
    return found


def _default_folder(chosen: Evaluate) -> Path:
    """In a single run by its step, so that a run that went on is another evaluation."""
    first = Path(chosen.what[0])
    if not chosen.endpoint and len(chosen.what) == 1 and (first / "checkpoints").is_dir():
        return step_folder(first / "evaluations", max(checkpoint_steps(first), default=0))
    if not chosen.endpoint and len(chosen.what) == 1:
        return Path("evaluations") / first.name
    return Path("evaluations") / first.name.replace("/", "--") if chosen.endpoint else free_folder(Path("evaluations"), first.name)


def _sampled(chosen: Evaluate, papers: Sequence[Paper], out: Path, progress, describe) -> dict[str, str]:
    from populora.evals.generating import GenerationPlan, generate, unfit
    from populora.evals.sources import find_sources

    sources = _with_engine(find_sources(chosen.what, chosen.members, chosen.base), chosen)
    bad = unfit(sources, chosen.merge)
    good = replace(sources, each=tuple(source for source in sources.each if source.name not in bad))
    if not good.each:
        raise ConfigError("; ".join(bad.values()))
    describe([Source(source.name, source.role) for source in good.each], bad)  # type: ignore[arg-type]
    generate(GenerationPlan(good, papers, chosen.merge), out, progress)
    return bad


def _with_engine(sources: Sources, chosen: Evaluate) -> Sources:
    config: Config = sources.config
    base = replace(config.base, **{name: value for name in ("device", "dtype") if (value := getattr(chosen, name))})
    engine = replace(config.engine, backend=chosen.backend) if chosen.backend else config.engine
    return replace(sources, config=replace(config, base=base, engine=engine))


def _from_endpoint(chosen: Evaluate, papers: Sequence[Paper], out: Path, progress, describe) -> dict[str, str]:
    from populora.evals.endpoint import Endpoint, generate_from

    route = "chat" if chosen.chat else "template"
    endpoint = Endpoint(chosen.endpoint, chosen.what[0], chosen.key_variable, chosen.parallel, route=route)
    coverage = generate_from(endpoint, papers, out, progress)
    describe([Source(source.name, "base") for source in coverage.sources], {})
    return {}
