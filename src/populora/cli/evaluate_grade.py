"""``populora evaluate grade``: grade an evaluation's folder, or completions of any origin. Nothing here loads torch."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from populora.cli.arguments import QUIET, parse
from populora.cli.evaluate_generate import SKIPPED, say
from populora.cli.progress import counting
from populora.core.errors import ConfigError
from populora.core.files import make_folder
from populora.evals.benchmarks import BENCHMARKS, Benchmark, find_benchmark
from populora.evals.completions import read_texts
from populora.evals.data import MissingDataError, digest_of, find_data, load_items, load_pinned
from populora.evals.eval_records import Item
from populora.evals.folder import completions_file, read_description, read_models, verdict_file
from populora.evals.grading import GRADERS, GraderPool, GradingJob, grade, missing_libraries, open_grader
from populora.runs.directory import locked


@dataclass(frozen=True)
class GradeArguments:
    """Grade an evaluation (`grade FOLDER`), or completions of any origin (`grade BENCH COMPLETIONS.jsonl --out VERDICTS.jsonl`):
    {"item_id", "completion"} lines in, {"item_id", "correct", "reason"} lines out.

    Every item of the data gets a line; one without a completion is wrong, with the reason `missing`. The same command resumes where it
    was stopped.
    """

    what: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="FOLDER | BENCH COMPLETIONS.jsonl"), QUIET] = ()
    """A folder of `populora evaluate`; or a benchmark such as `humaneval_plus` or `gsm8k`, and a file with one JSON object a line."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="FILE"), QUIET] = None
    """File for the verdicts on a file of completions; counts, versions and limits go into its neighbour `.json`."""
    data: Annotated[Path | None, tyro.conf.arg(metavar="PATH"), QUIET] = None
    """The benchmark's data file, or its folder, by default downloaded. For an evaluation: the folder of all, if it has moved."""
    completion_is_solution: tyro.conf.FlagCreatePairsOff[Annotated[bool, QUIET]] = False
    """Code benchmarks: completions are plain code, from which nothing is extracted."""
    workers: Annotated[int, tyro.conf.arg(metavar="N")] = 2
    """Items that are graded at the same time."""
    allow_weak: tyro.conf.FlagCreatePairsOff[Annotated[bool, QUIET]] = False
    """Accept a machine without system-call filters: programs can then do what your user can."""


def main(arguments: Sequence[str]) -> int:
    """Grade; returns 0, or 1 where the completions had faults. Raises `PopuloraError`."""
    args = parse(GradeArguments, arguments, "evaluate grade")
    if args.workers < 1:
        raise ConfigError(f"--workers is {args.workers}: expected 1 or more")
    if len(args.what) == 1:
        if args.out or args.completion_is_solution:
            raise ConfigError("--out and --completion-is-solution are for a file of completions: a folder has its own verdicts and prompts")
        return grade_folder(Path(args.what[0]), args)
    if len(args.what) != 2 or args.out is None:
        raise ConfigError("expected the folder of an evaluation, or BENCH COMPLETIONS.jsonl --out VERDICTS.jsonl")
    return _grade_file(find_benchmark(args.what[0]), Path(args.what[1]), args.out, args)


def _grade_file(benchmark: Benchmark, completions: Path, out: Path, args: GradeArguments) -> int:
    if args.completion_is_solution and not GRADERS[benchmark.grading].reads_solutions:
        raise ConfigError(f"--completion-is-solution is for code benchmarks, {benchmark.name} is none")
    inside = args.data / benchmark.file if args.data else None
    path = inside if inside and inside.exists() else args.data or find_data(benchmark)
    items, sha256 = load_items(benchmark, path, verify=False), digest_of(path)
    if benchmark.sha256 not in ("", sha256):
        say(f"warning: '{path}' is not the pinned {benchmark.name} (SHA-256 {sha256}): these scores compare with no others")
    texts, faults = read_texts(completions, items)
    job = GradingJob(benchmark, items, texts, sha256, args.completion_is_solution)
    with open_grader(benchmark, args.workers, args.allow_weak) as pool, counting(benchmark.name) as progress:
        counts = grade(job, out, pool, progress)
    _report("", job, counts, faults)
    return 1 if counts["missing"] or faults else 0


def grade_folder(folder: Path, args: GradeArguments) -> int:
    """Grade every completion of an evaluation; returns the exit code. Items without a completion get no verdict."""
    description, models, code, faults = read_description(folder), read_models(folder), 0, 0
    names = description["settings"]["benchmarks"]
    if not any(completions_file(folder, name, model.name).is_file() for name in names for model in models):
        raise ConfigError(f"'{folder}' has no completions yet: repeat the `populora evaluate` command that made it")
    with locked(folder):
        for benchmark in (BENCHMARKS[name] for name in names):
            try:
                items, sha256 = _load_data(benchmark, description.get("data", {}).get(benchmark.name, ""), args.data)
            except MissingDataError as error:
                say(f"skipped {error}")
                code = SKIPPED
            else:
                with open_grader(benchmark, args.workers, args.allow_weak) as pool:
                    faults += sum(_grade_model(folder, model.name, GradingJob(benchmark, items, {}, sha256), pool) for model in models)
    return max(code, int(faults > 0))


def _load_data(benchmark: Benchmark, recorded: str, data: Path | None) -> tuple[list[Item], str]:
    """Load a benchmark's items and the digest of their files. Raises `MissingDataError` where it cannot be graded."""
    if message := missing_libraries(benchmark):
        raise MissingDataError(message)
    path = Path(recorded)
    if data or benchmark.grading == "selfplay":  # whose file is part of the package
        path = find_data(benchmark, str(data or ""))
    elif not path.exists():
        raise MissingDataError(f"{benchmark.name}: its data is not at '{path}' any more: say with --data DIR where it is")
    return load_pinned(benchmark, path), digest_of(path)


def _grade_model(folder: Path, model: str, job: GradingJob, pool: GraderPool) -> int:
    """Grade the completions that there are for a job without texts; returns the number of unreadable lines."""
    completions, out = completions_file(folder, job.benchmark.name, model), verdict_file(folder, job.benchmark.name, model)
    if not completions.is_file():
        return 0
    texts, faults = read_texts(completions, job.items)
    job = replace(job, items=[item for item in job.items if item.id in texts], texts=texts)
    make_folder(out.parent)
    with counting(f"{job.benchmark.name} {model}") as progress:
        _report(f"{model} on ", job, grade(job, out, pool, progress), faults)
    return len(faults)


def _report(prefix: str, job: GradingJob, counts: Mapping[str, Any], faults: Sequence[str]) -> None:
    name, missing, items, correct = prefix + job.benchmark.name, counts["missing"], counts["items"], counts["correct"]
    for fault in faults:
        say(f"{name}: {fault}")
    if missing:
        more = f" and {len(missing) - 10} more" if len(missing) > 10 else ""
        say(f"{len(missing)} items have no completion and count as wrong: {', '.join(missing[:10])}{more}")
    if void := counts["void"]:
        listed = ", ".join(f"{item} ({reason})" for item, reason in list(void.items())[:10])
        more = f" and {len(void) - 10} more, see the verdicts" if len(void) > 10 else ""
        say(f"{name}: {len(void)} items are void and count neither as correct nor as wrong: {listed}{more}")
    if counts["passed_on_retry"]:
        say(f"passed when graded alone, after a failure: {', '.join(counts['passed_on_retry'])}")
    modes = ", ".join(f"{name} {count}" for name, count in counts["modes"].items())
    share = f"{100 * correct / items:.1f} %" if items else "none"
    sys.stdout.write(f"{name}: {correct} of {items} correct ({share})" + (f"; {modes}\n" if modes else "\n"))
