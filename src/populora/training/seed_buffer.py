"""Problems in the buffer before the first step (reading 10).

A base that ships ``seeds.jsonl`` (the tiny ones) uses that file. For a base that does not know a domain, the domain's package may have such
a file. Any other base proposes its seeds of a domain itself (`populora.training.seed_proposals`), once for all its runs. A file in the
user's cache keeps them, so arms and seeds start alike.
"""

import fcntl
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path

from populora.core.errors import ConfigError, RunDirectoryError, SandboxFault
from populora.core.files import digest, json_bytes, user_cache
from populora.core.installed import versions
from populora.core.types import TaskType
from populora.domains.registry import load_domain, sandbox_limits
from populora.engine.model.loading import base_folder
from populora.training.buffer import read_problems
from populora.training.run import Run
from populora.training.seed_proposals import VERSION, Seeds, count_seeds, propose_seeds


def fill_buffer(run: Run, remark: Callable[[str], None] = lambda text: None, stop: Callable[[], bool] = lambda: False) -> str:
    """Fill the run's buffer with ``selfplay.seeds`` problems of each type, and return their SHA-256.

    ``remark`` receives where the base's own are kept. If ``stop`` is true while the base makes them, raises `KeyboardInterrupt`; what it
    has made is kept. Raises `ConfigError` for a file that ships too few and for prompts that do not fit,
    `BaseModelError` for a damaged file and for a base that cannot propose enough valid problems.
    """
    file, wanted, tasks = base_folder(run.config.base) / "seeds.jsonl", run.config.selfplay.seeds, run.config.task_types
    seeds = _shipped_seeds(run, file)
    lacking = {task.domain for task, count in count_seeds(seeds, tasks).items() if not count}
    if lacking and not file.exists():
        seeds = [seed for seed in seeds if seed[0].task.domain not in lacking]
        seeds += _base_seeds(run, [task for task in tasks if task.domain in lacking], remark, stop)
    for task, count in count_seeds(seeds, tasks).items():
        if not count:
            raise ConfigError(
                f"'{file}' has no problem of {task}: choose a base that knows the domain '{task.domain}', or put a seeds.jsonl next to the "
                "prompts of the domain's package"
            )
        if count < wanted:
            raise ConfigError(
                f"selfplay.seeds is {wanted}, but '{file.name}' has {count} problems of {task}: lower selfplay.seeds, or add problems"
            )
        for problem, fingerprint in [seed for seed in seeds if seed[0].task is task][:wanted]:
            run.buffer.add(problem, fingerprint)
    return digest(repr([run.buffer.problems(task) for task in tasks]).encode())


def _shipped_seeds(run: Run, file: Path) -> Seeds:
    """Read the base's ``file``, and for a domain that it lacks the file of the domain's package. Either need not exist."""
    seeds = _read(run, file) if file.exists() else []
    for domain in map(load_domain, run.config.domains):
        if domain.seeds.is_file() and not any(problem.task.domain == domain.name for problem, _ in seeds):
            seeds += _read(run, domain.seeds, "install the package of the domain again")
    return seeds


def seed_file(run: Run) -> Path:
    """Return the file that keeps the base's own seeds, named after all that they depend on.

    The environment variable ``POPULORA_SEEDS`` names another folder than that in the user's cache.
    """
    config, tasks = run.config, asdict(run.config.tasks)
    del tasks["extraction"]  # it concerns answers alone
    facts = {
        "version": [VERSION, versions(["populora"])["populora"], *sys.version_info[:2]],
        "base": [run.fingerprints[name] for name in ("base_sha256", "tokenizer_sha256")],
        "prompts": repr(run.prompts),
        "tokens": [config.selfplay.max_prompt_tokens, config.selfplay.max_response_tokens],
        "tasks": tasks,
        "domains": [run.fingerprints["domains"], *config.domains],
        "sandbox": [run.fingerprints["sandbox"], asdict(sandbox_limits(config))],
    }
    folder = Path(os.environ.get("POPULORA_SEEDS") or user_cache() / "seeds")
    return folder / f"{digest(json_bytes(facts))[:16]}.jsonl"


def _base_seeds(run: Run, tasks: Sequence[TaskType], remark: Callable[[str], None], stop: Callable[[], bool]) -> Seeds:
    """Return the base's own seeds of these types. The base proposes those that the file lacks."""
    file = seed_file(run)

    def kept() -> Seeds:
        seeds = _read(run, file, "remove it, and the base proposes its seeds again") if file.exists() else []
        return [seed for seed in seeds if seed[0].task in tasks]

    def enough() -> bool:
        return min(count_seeds(seeds, tasks).values()) >= run.config.selfplay.seeds

    seeds = kept()
    if not enough():
        with _locked(file, remark):
            seeds = kept()  # another run may have made them meanwhile
            if not enough():
                remark(f"the base proposes its seed problems, once for all its runs: {file}")
                return propose_seeds(run, tasks, file, seeds, stop)
    remark(f"seed problems as in earlier runs of this base: {file}")
    return seeds


def _read(run: Run, file: Path, *remedy: str) -> Seeds:
    problems = [problem for problem in read_problems(file, *remedy) if problem.task in run.config.task_types]
    try:
        measures = run.verifier.measures(problems)
    except SandboxFault as error:
        raise SandboxFault(f"'{file}': {error}") from error
    return [(problem, measured.fingerprint) for problem, measured in zip(problems, measures, strict=True)]


@contextmanager
def _locked(file: Path, remark: Callable[[str], None]) -> Iterator[None]:
    """Lock ``file``, so that runs which begin together do not make its seeds twice. Raises `RunDirectoryError`."""
    with ExitStack() as stack:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context(file.with_suffix(".lock").open("ab"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                remark(f"waiting for another run, which makes the seed problems of this base: {file}")
                fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            fault = f"seed problems cannot be kept in '{file.parent}': {error.strerror}"
            raise RunDirectoryError(f"{fault}. Name another folder with POPULORA_SEEDS.") from error
        yield
