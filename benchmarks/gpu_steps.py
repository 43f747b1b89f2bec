"""Run whole steps of 4 teachers and 4 students on a base of Qwen2.5's shape, in this process, on one GPU.

    python -m benchmarks.gpu_steps [--shapes Qwen2.5-0.5B] [--steps 4]      writes speed/gpu_steps.json

Sampling, verification, learning, evolution and checkpoints are those of any run, with the tokenizer, prompts and seed problems of the tiny
base and a twelfth of the paper's prompts. The weights are random, so the sampler is given the answers that it writes
(`benchmarks.given_answers`). The run's own guards compare the log-probabilities of sampler and learner in every step. The first step
compiles kernels and captures graphs, so it is shown apart. Without a GPU the same code runs at toy size. Its speeds mean nothing, so it
writes a file only if ``--out`` names one.
"""

import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from benchmarks.given_answers import given_answers
from benchmarks.measuring import columns, machine, options, write_results
from benchmarks.speed.gpu_plan import QWEN, TOY, Base
from benchmarks.speed.random_base import qwen2
from rich.console import Console

from populora.core.config import (
    BaseConfig,
    Config,
    EngineConfig,
    EvolutionConfig,
    LearnerConfig,
    LoraConfig,
    PopulationConfig,
    SandboxConfig,
    SelfplayConfig,
)
from populora.engine.model.loading import base_folder
from populora.runs.display import PlainDisplay
from populora.runs.metrics_log import TIMINGS, read_log
from populora.training.loop import train

SHAPES = {**QWEN, "Qwen2.5-1.5B": Base((1536, 28, 8960, 12, 2), vocabulary=151_936, tied=True), **TOY.bases}
TOKENS = {"cuda": 256, "cpu": 64}
"""Of a response, by device."""
CONTEXT = 2048
PEAKEDNESS = 4.0
"""Scale of the last norm: the logits of random weights would hardly differ, and rounding would not show."""
KEPT = (
    "teacher/validity/code",
    "student/solve_rate/code",
    "tokens/",
    "learner/mean_difference/",
    "learner/max_difference/",
    "learner/kl/",
    "learner/ess/",
)


def main(arguments: Sequence[str] | None = None) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    shapes = ["Qwen2.5-0.5B"] if device == "cuda" else list(TOY.bases)
    parser = options(__doc__, Path(__file__).parent / "speed" / "gpu_steps.json" if device == "cuda" else None)
    parser.add_argument("--shapes", nargs="+", default=shapes, choices=list(SHAPES))
    parser.add_argument("--steps", type=int, default=4, help="at least 2: the first is shown apart")
    args = parser.parse_args(arguments)
    if args.steps < 2:
        parser.error(f"--steps is {args.steps}: expected at least 2, because the first step is shown apart")
    gpu = torch.cuda.get_device_name() if device == "cuda" else None
    about = {"gpu": gpu, "machine": machine("torch", "transformers"), "steps": args.steps, "tokens of a response": TOKENS[device]}
    write_results(args.out, {**about, "shapes": {shape: measure(SHAPES[shape], args.steps, device) for shape in args.shapes}})


def measure(base: Base, steps: int, device: str) -> dict[str, Any]:
    """Return seconds by phase, tokens a second, peak memory, and how far sampler and learner are apart."""
    with tempfile.TemporaryDirectory() as name, given_answers(TOKENS[device]):
        folder = Path(name)
        make_base(base, folder / "base", device)
        if device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        display = PlainDisplay(folder, steps, lambda: False, Console(file=sys.stderr))
        train(settings(folder / "base", device, steps), folder / "run", display)
        metrics, timings = read_log(folder / "run"), read_log(folder / "run", TIMINGS)
    memory = round(torch.cuda.max_memory_allocated() / 2**30, 2) if device == "cuda" else None
    first, *later = ({key: value for key, value in line.items() if key != "step"} for line in timings)
    last = {name: value for name, value in metrics[-1].items() if name.startswith(KEPT)}
    return {"peak_gib": memory, "first step": first, "later steps": columns(later), "last step": last}


def make_base(base: Base, folder: Path, device: str) -> None:
    """Write a random base with the tokenizer and the seed problems of the tiny one."""
    dtype = "bfloat16" if device == "cuda" else "float32"
    model = qwen2(base.widths, base.vocabulary, CONTEXT, base.tied, device, dtype)
    model.model.norm.weight.data *= PEAKEDNESS
    model.save_pretrained(folder)
    for file in ("tokenizer.json", "tokenizer_config.json", "seeds.jsonl"):
        shutil.copyfile(base_folder(BaseConfig()) / file, folder / file)


def settings(folder: Path, device: str, steps: int) -> Config:
    """Two prompts of each type with the paper's samples; on a CPU fewer."""
    gpu = device == "cuda"
    return Config(
        steps=steps,
        base=BaseConfig(str(folder), dtype="bfloat16" if gpu else "float32", device=device, kernels="torch"),
        lora=LoraConfig(32, 64.0) if gpu else LoraConfig(8, 16.0),
        population=PopulationConfig(4, 4),
        selfplay=SelfplayConfig(
            prompts_per_type=2 if gpu else 1, samples_per_prompt=8 if gpu else 3, rho_samples=8 if gpu else 2, max_prompt_tokens=512,
            max_response_tokens=2 * TOKENS[device], seeds=64,
        ),
        engine=EngineConfig(rows=256 if gpu else 32, cache_mb=8192 if gpu else 256),
        learner=LearnerConfig(old_logprobs="recomputed", micro_batch_tokens=16_384 if gpu else 2048),
        evolution=EvolutionConfig(every=2),
        sandbox=SandboxConfig(workers=8 if gpu else 2),
    )  # fmt: skip


if __name__ == "__main__":
    main()
