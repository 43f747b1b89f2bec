"""`python -m experiments.tiny_base build`: pretrain, then write the folder that ships: weights, tokenizer, seeds, held-out suite, card.

The folder loads with plain ``AutoModelForCausalLM`` / ``AutoTokenizer``. ``seeds.jsonl`` fills a run's buffer at the start;
``held_out.jsonl`` is the evaluation suite, whose programs were kept out of the corpus by the hash of their AST.
"""

import hashlib
import json
import platform
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path

import torch
from experiments.tiny_base.data import PretrainConfig, corpus_digest, mixture_of
from experiments.tiny_base.describe import LEVELS, describe
from experiments.tiny_base.mixtures import MESSAGES
from experiments.tiny_base.pretrain import Model, pretrain
from experiments.tiny_base.samples import HELD_OUT_ONE_IN, Sample, draw_sample, inputs_text
from experiments.tiny_base.sql.problems import draw_problem
from experiments.tiny_base.tokenizer import save_tokenizer
from safetensors import SafetensorError

from populora.core.errors import RunDirectoryError
from populora.core.files import disk_errors
from populora.core.rng import stream
from populora.core.types import CODE_TYPES, Example, Problem, TaskType, task_types
from populora.engine.model.loading import torch_device
from populora.tasks.render import fill, load_prompts

SEED_BUDGETS, SEEDS_PER_TYPE = (1, 2, 3, 4), 128
HELD_OUT_LEVELS, HELD_OUT_PER_CELL = (1, 2, 3, 4, 5, 6), 36
RETENTION_BUDGETS, RETENTION_SEEDS, RETENTION_POOL = (2, 3, 4), 4, 24


def build(
    config: PretrainConfig,
    work: Path,
    out: Path,
    device: str = "cpu",
    progress: Callable[[dict], None] = lambda line: None,
) -> Path:
    """Pretrain in ``work`` (resumable) and write the base into ``out``. Raises `BaseModelError` for a device that is not there."""
    torch_device(device)
    model = pretrain(config, work, device, progress)
    return export(config, model, work, out)


def export(config: PretrainConfig, model: Model, work: Path, out: Path) -> Path:
    """Write the shipped folder from a trained model. Raises `RunDirectoryError` when the disk refuses; ``work`` stays as it is."""
    try:
        with disk_errors(out):
            _write(config, model, work, out)
    except SafetensorError as error:  # its own class, also for a full disk
        raise RunDirectoryError(f"cannot write '{out}': {error}. Free some space and build again: what is trained is kept.") from error
    return out


def _write(config: PretrainConfig, model: Model, work: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    model.to("cpu", torch.float32).save_pretrained(out)
    (out / "model.safetensors").chmod(0o644)  # safetensors writes for the owner alone
    save_tokenizer(out, config.languages)
    shutil.copyfile(work / "training_log.jsonl", out / "training_log.jsonl")
    write_problems(out / "seeds.jsonl", seed_problems(config.seed, config.languages))
    write_problems(out / "held_out.jsonl", held_out_problems(config.seed, config.languages))
    weights = hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest()
    recipe = {
        "config": asdict(config), "corpus": corpus_digest(config), "weights_sha256": weights,
        "python": platform.python_version(), "torch": torch.__version__,
    }  # fmt: skip
    (out / "recipe.json").write_text(json.dumps(recipe, indent=2) + "\n")
    (out / "README.md").write_text(model_card(config, model, work), encoding="utf-8")


def model_card(config: PretrainConfig, model: Model, work: Path) -> str:
    """The card, with the figures of this build filled in."""
    last = json.loads((work / "training_log.jsonl").read_text().splitlines()[-1])
    values = {
        **asdict(config), "parameters": f"{model.num_parameters():,}", "vocabulary": model.config.vocab_size,
        "tokens": f"{last['tokens']:,}", "direct": mixture_of(config, config.shards - 1).styles["direct"], "held_out": HELD_OUT_ONE_IN,
    }  # fmt: skip
    name = "model_card_both.md" if "sql" in config.languages else "model_card.md"
    template = files("experiments.tiny_base").joinpath(name).read_text(encoding="utf-8")
    return fill(template, **values)


def write_problems(path: Path, problems: list[Problem]) -> None:
    path.write_text("".join(json.dumps(asdict(problem)) + "\n" for problem in problems), encoding="utf-8")


def seed_problems(seed: int, languages: Sequence[str] = ("python",)) -> list[Problem]:
    """Short problems of each type for the start of a run's buffer."""
    budgets = [SEED_BUDGETS[index % len(SEED_BUDGETS)] for index in range(SEEDS_PER_TYPE)]
    rng, sql_rng = stream(seed, "seed-problems"), stream(seed, "seed-problems", "sql")
    problems = [
        problem_of(rng, task, f"seed-{task}-{index}", "seed", draw_sample(rng, budget))
        for task in CODE_TYPES
        for index, budget in enumerate(budgets)
    ]
    sql_types = task_types(["sql"]) if "sql" in languages else ()
    return problems + [
        draw_problem(sql_rng, task, f"seed-{task}-{index}", "seed", budget) for task in sql_types for index, budget in enumerate(budgets)
    ]


def held_out_problems(seed: int, languages: Sequence[str] = ("python",)) -> list[Problem]:
    """The held-out suite: `HELD_OUT_PER_CELL` problems for each level and type, of programs never pretrained on."""
    rng, sql_rng = stream(seed, "held-out-problems"), stream(seed, "held-out-problems", "sql")
    problems = [
        problem_of(rng, task, f"held-{task}-{level}-{index}", f"level-{level}", draw_sample(rng, level, evaluation=True))
        for task in CODE_TYPES
        for level in HELD_OUT_LEVELS
        for index in range(HELD_OUT_PER_CELL)
    ]
    return problems + [
        draw_problem(sql_rng, task, f"held-{task}-{level}-{index}", f"level-{level}", level, evaluation=True)
        for task in (task_types(["sql"]) if "sql" in languages else ())
        for level in HELD_OUT_LEVELS
        for index in range(HELD_OUT_PER_CELL)
    ]


def retention_problems() -> list[Problem]:
    """Problems for the retention benchmark: 24 of each task for each of four seeds, of 2 to 4 statements."""
    problems = []
    for seed in range(RETENTION_SEEDS):
        for task in CODE_TYPES:
            rng = stream(seed, "retention", "pool", task)
            for index in range(RETENTION_POOL):
                sample = draw_sample(rng, int(rng.choice(RETENTION_BUDGETS)))
                problems.append(problem_of(rng, task, f"{seed}-{task}-{index}", "generator", sample))
    return problems


def problem_of(rng, task: TaskType, name: str, author: str, sample: Sample) -> Problem:
    if task is not TaskType.CODE_F:
        return sample.problem(task, name, author)
    half = load_prompts("compact").inputs_wanted // 2
    pairs = [Example(inputs_text(values), repr(run.value)) for values, run in zip(sample.arguments, sample.runs, strict=True)]
    level = LEVELS[int(rng.choice(len(LEVELS), p=[weight / 100 for weight in MESSAGES]))]
    return Problem(name, task, sample.source, tuple(pairs[:half]), tuple(pairs[half : 2 * half]), describe(sample.source, level), author)
