"""Make the tiny base again, measure it, and write the retention benchmark's problems."""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks.measuring import write_results

from populora.cli.arguments import parse
from populora.core.config import BaseConfig, Config, EvolutionConfig, LearnerConfig, LoraConfig, PopulationConfig, SelfplayConfig
from populora.core.errors import ConfigError, PopuloraError
from populora.core.files import disk_errors

PROGRAM = "python -m experiments.tiny_base"
USAGE = f"usage: {PROGRAM} build|acceptance|headroom|problems [--help]"
RESULTS = Path(__file__).with_name("results")


def main(arguments: Sequence[str]) -> int:
    """Run one of the commands. Raises `PopuloraError`."""
    commands = {"build": build, "acceptance": acceptance, "headroom": headroom, "problems": problems}
    if arguments and arguments[0] in ("-h", "--help"):
        print(f"{USAGE}\n\n" + "\n".join(f"  {name:<10} {command.__doc__}" for name, command in commands.items()))
        return 0
    if not arguments or arguments[0] not in commands:
        raise ConfigError(
            f"expected 'build', 'acceptance', 'headroom' or 'problems', got {arguments[0] if arguments else 'nothing'}. {USAGE}"
        )
    return commands[arguments[0]](arguments[1:])


def problems(arguments: Sequence[str]) -> int:
    """write the problems that ship with the retention benchmark"""
    if arguments:
        raise ConfigError(f"expected no arguments after 'problems', got {' '.join(arguments)}")
    from experiments.tiny_base.build import retention_problems, write_problems

    from populora.evals.retention.trainer import SHIPPED

    write_problems(SHIPPED, retention_problems())
    print(SHIPPED)
    return 0


@dataclass(frozen=True)
class Build:
    """Pretrain the tiny base from scratch and write the folder that ships. Hours on two cores; goes on where it stopped."""

    recipe: str = "python"
    """``python``, or ``both`` for one base of Python and SQL."""
    out: Path = Path("build/tiny")
    work: Path = Path("build/tiny-work")
    """Checkpoints and the training log."""
    device: str = "cpu"
    seed: int = 0


def build(arguments: Sequence[str]) -> int:
    """make the tiny base again, from scratch"""
    chosen = parse(Build, arguments, "build", program=PROGRAM)  # before the imports: --help needs no torch
    from experiments.tiny_base import build as building
    from experiments.tiny_base.recipes import RECIPES

    if chosen.recipe not in RECIPES:
        raise ConfigError(f"--recipe: expected one of {', '.join(RECIPES)}, got '{chosen.recipe}'")
    config = replace(RECIPES[chosen.recipe], seed=chosen.seed)
    print(building.build(config, chosen.work, chosen.out, chosen.device, print))
    return 0


@dataclass(frozen=True)
class Acceptance:
    """Validity, solve rate and reward by length of the base's own proposals."""

    base: str = "tiny"
    domain: str = "python"
    """``python`` or ``sql``."""
    out: Path = RESULTS / "acceptance.json"
    prompts_per_type: int = 3840
    seed: int = 0
    threads: int = 1


def acceptance(arguments: Sequence[str]) -> int:
    """play the base against itself: validity, solve rate, does harder pay"""
    chosen = parse(Acceptance, arguments, "acceptance", program=PROGRAM)
    _at_least_one({"prompts-per-type": chosen.prompts_per_type})
    _make_folders(chosen.out)
    from experiments.tiny_base.acceptance import passed, play, report

    from populora.training.evaluation import load_held_out
    from populora.training.loop import build_run
    from populora.training.seed_buffer import fill_buffer

    config = Config(
        seed=chosen.seed, threads=chosen.threads, domains=(chosen.domain,), base=BaseConfig(path=chosen.base),
        lora=LoraConfig(rank=8, alpha=16.0),
        population=PopulationConfig(single_agent=True), evolution=EvolutionConfig(every=0),
        selfplay=SelfplayConfig(
            prompts_per_type=chosen.prompts_per_type, samples_per_prompt=1, rho_samples=8, max_prompt_tokens=256,
            max_response_tokens=224, buffer_size=1024, seeds=128,
        ),
    )  # fmt: skip
    with build_run(config) as run:
        fill_buffer(run)
        scored = play(run, load_held_out(config.base, per_type=216, tasks=config.task_types))
    results = report(scored, chosen.domain, chosen.seed)
    checks = passed(results, chosen.domain)
    _write(chosen.out, {"command": _settings(chosen), "base_sha256": run.fingerprints["base_sha256"], "passed": checks, "results": results})
    return 0 if all(checks.values()) else 1


@dataclass(frozen=True)
class Headroom:
    """Greedy accuracy of a student trained alone on a fixed distribution, before and after."""

    base: str = "tiny"
    out: Path = RESULTS / "headroom.json"
    seeds: tuple[int, ...] = (0, 1, 2)
    steps: int = 150
    per_type: int = 12
    samples: int = 8
    rank: int = 8
    learning_rate: float = 3e-3
    threads: int = 1
    log: Path = RESULTS / "headroom_curves.parquet"


def headroom(arguments: Sequence[str]) -> int:
    """train a student alone on a fixed distribution: how much it learns"""
    chosen = parse(Headroom, arguments, "headroom", program=PROGRAM)
    _at_least_one({"seeds": len(chosen.seeds), "steps": chosen.steps, "per-type": chosen.per_type, "samples": chosen.samples})
    _make_folders(chosen.out, chosen.log)
    from experiments.tiny_base.headroom import measure_headroom, passed

    checks, results, lines = {}, [], []

    def keep(seed: int, line: dict) -> None:
        lines.append({"seed": seed, **line})
        print(lines[-1], flush=True)

    for seed in chosen.seeds:  # each seed is minutes: it is on disk before the next one begins
        config = _headroom_config(chosen, seed)
        results.append(measure_headroom(config, chosen.steps, chosen.per_type, chosen.samples, partial(keep, seed)))
        checks = passed(results)
        with disk_errors(chosen.log):
            pq.write_table(pa.Table.from_pylist(lines), chosen.log, compression="zstd")
        _write(chosen.out, {"command": _settings(chosen), "passed": checks, "results": results})
    return 0 if all(checks.values()) else 1


def _headroom_config(chosen: Headroom, seed: int) -> Config:
    return Config(
        seed=seed, threads=chosen.threads, base=BaseConfig(path=chosen.base), lora=LoraConfig(chosen.rank, 2.0 * chosen.rank),
        population=PopulationConfig(teachers=1, students=1), evolution=EvolutionConfig(every=0),
        learner=LearnerConfig(learning_rate=chosen.learning_rate, betas=(0.9, 0.99), centring="batch"),
        selfplay=SelfplayConfig(max_prompt_tokens=256, max_response_tokens=224, buffer_size=128, seeds=1),
    )  # fmt: skip


def _settings(chosen: Acceptance | Headroom) -> dict:
    """The settings that the results depend on, so not the paths of files."""
    return {name: value for name, value in asdict(chosen).items() if not isinstance(value, Path)}


def _make_folders(*files: Path) -> None:
    """Create the folders before the work, which takes minutes."""
    for file in files:
        with disk_errors(file):
            file.parent.mkdir(parents=True, exist_ok=True)


def _write(path: Path, content: dict) -> None:
    with disk_errors(path):
        write_results(path, content)


def _at_least_one(values: dict[str, int]) -> None:
    for name, value in values.items():
        if value < 1:
            raise ConfigError(f"--{name}: expected 1 or more, got {value}")


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except PopuloraError as error:
        sys.exit(f"{PROGRAM}: error: {error}")
