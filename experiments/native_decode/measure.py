"""Compare decoding by torch and by `decode.c`: steps of 8, 64 and 512 rows on the tiny base, and whole self-play steps.

    python -m experiments.native_decode.measure [--rounds 5] [--steps 4]        writes results.json; seven minutes

Both decode the same requests in turns, on one thread, in CPU seconds of this process. ``equal`` counts responses with equal tokens;
``largest difference`` is that of their log-probabilities, in nats. Whole steps are wall seconds of two runs of equal seeds, step by step in
turns: one by torch alone, one that samples by `decode.c`, and one that also computes the base's products by oneDNN.
"""

import argparse
import json
import time
import timeit
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from benchmarks.measuring import machine, ratio, spread
from experiments.native_decode.decoder import make_pool, native_sampling
from experiments.native_decode.loading import load
from experiments.native_decode.model import floats
from experiments.native_decode.products import onednn_products

from populora.core.config import BaseConfig
from populora.core.config_file import load_config
from populora.core.presets import settings_file
from populora.core.types import Generation, Request
from populora.engine.model.adapted_model import AdaptedModel
from populora.engine.model.loading import load_base
from populora.engine.sampling.inprocess import InProcessSampler
from populora.training.loop import build_run
from populora.training.seed_buffer import fill_buffer
from populora.training.step import selfplay_step

SLOTS, SAMPLES, TOKENS = 4, 8, 96
PROGRAM = "<solve><code_o>def f(x):\n    y = x + {}\n    return y * x\n"
WAYS = ("torch", "native", "native and oneDNN")
WIDTHS = ((128, 384), (128, 1024), (512, 128))
PRESETS = {"2T+2S": "tiny", "4T+4S": "tiny_4t4s"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("results.json"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    shapes = [(count, *widths) for count in (8, 64, 2048) for widths in WIDTHS]
    products = {" x ".join(map(str, shape)): compare_products(*shape) for shape in shapes}
    rows = {str(count): compare_sampling(count, args.rounds) for count in (8, 64, 512)}
    steps = {name: compare_steps(preset, args.steps) for name, preset in PRESETS.items()}
    results = {"machine": machine("torch", "numpy"), "products": products, "rows": rows, "steps": steps}
    args.out.write_text(json.dumps(results, indent=1) + "\n")


def compare_products(rows: int, inputs: int, outputs: int) -> dict[str, float]:
    """Return 10^9 FLOP/s of one float32 product by torch's default (MKL), by oneDNN through torch, and by `decode.c`."""
    library: Any = load()
    x, weight, y = torch.randn(rows, inputs), torch.randn(outputs, inputs), torch.empty(rows, outputs)
    packed = floats(weight.numel())
    library.pack(inputs, outputs, weight.data_ptr(), packed.ctypes.data)
    cases = {
        "MKL": lambda: torch.nn.functional.linear(x, weight),
        "oneDNN": lambda: torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], ""),
        "decode.c": lambda: library.multiply(rows, inputs, outputs, x.data_ptr(), packed.ctypes.data, y.data_ptr()),
    }
    repeats = max(1, 10**9 // (2 * rows * inputs * outputs))
    best = {name: min(timeit.repeat(case, time.process_time, number=repeats, repeat=7)) / repeats for name, case in cases.items()}
    return {name: round(2e-9 * rows * inputs * outputs / seconds, 1) for name, seconds in best.items()}


def compare_sampling(rows: int, rounds: int) -> dict[str, Any]:
    """Sample ``rows`` responses in turns. Returns milliseconds a decoding step, the ratio, and how far the responses agree."""
    model, tokenizer = load_base(BaseConfig())
    adapted = AdaptedModel(model, ("q_proj", "k_proj", "v_proj", "o_proj"), SLOTS, 8, 16.0)
    adapted.bank.initialise(0)
    adapted.bank.master.add_(0.01 * torch.randn(adapted.bank.master.shape, generator=torch.Generator().manual_seed(0)))
    sampler, pool = InProcessSampler(adapted, tokenizer, 0), make_pool(adapted, TOKENS)
    samples = min(SAMPLES, rows // SLOTS)
    requests = [
        Request(PROGRAM.format(number), slot, samples, ("measure", slot, number))
        for slot in range(SLOTS)
        for number in range(rows // SLOTS // samples)
    ]
    seconds: dict[str, list[float]] = {"torch": [], "native": []}
    responses: dict[str, list[Generation]] = {}
    for _ in range(rounds + 1):
        for name, taken in seconds.items():
            with native_sampling(sampler, pool) if name == "native" else nullcontext():
                started = time.process_time()
                generations = sampler.generate(requests, TOKENS, 1.0, "")
                taken.append(time.process_time() - started)
            responses[name] = [generation for of_request in generations for generation in of_request]
    steps = max(len(response.tokens) for response in responses["torch"])
    counted = {name: values[1:] for name, values in seconds.items()}
    milliseconds = {name: spread([1000 * value / steps for value in values]) for name, values in counted.items()}
    return {"milliseconds a step": milliseconds, "torch / native": ratio(counted, "torch", "native"), **agreement(*responses.values())}


def agreement(left: Sequence[Generation], right: Sequence[Generation]) -> dict[str, Any]:
    """Count the responses with equal tokens, and return the largest difference of their log-probabilities."""
    equal = [(a, b) for a, b in zip(left, right, strict=True) if a.tokens == b.tokens]
    differences = [abs(x - y) for a, b in equal for x, y in zip(a.logprobs, b.logprobs, strict=True)]
    return {"responses": len(left), "equal": len(equal), "largest difference": max(differences, default=0.0)}


def compare_steps(preset: str, steps: int) -> dict[str, Any]:
    """Make steps of three runs in turns, after one step that is not counted."""
    config = load_config(settings_file(preset))
    config = replace(config, threads=1, evaluation=replace(config.evaluation, every=0))
    seconds: dict[str, list[dict[str, float]]] = {name: [] for name in WAYS}
    with ExitStack() as stack:
        runs = {name: stack.enter_context(build_run(config)) for name in WAYS}
        for run in runs.values():
            fill_buffer(run)
        pools = {name: make_pool(run.sampler.adapted, config.selfplay.max_response_tokens) for name, run in runs.items()}  # type: ignore[attr-defined]
        for step in range(steps + 1):
            for name in (*WAYS[step % 3 :], *WAYS[: step % 3]):
                sampling = nullcontext() if name == "torch" else native_sampling(runs[name].sampler, pools[name])  # type: ignore[arg-type]
                with sampling, onednn_products() if name == "native and oneDNN" else nullcontext():
                    started = time.perf_counter()
                    record = selfplay_step(runs[name])
                    whole = time.perf_counter() - started
                phases = {phase: record.seconds[phase] for phase in ("propose", "solve", "wait", "update")}
                seconds[name].append({"whole": whole, **phases})
    counted = {name: rows[1:] for name, rows in seconds.items()}
    whole = {name: [row["whole"] for row in rows] for name, rows in counted.items()}
    return {
        "seconds": {name: {phase: round(median(row[phase] for row in rows), 3) for phase in rows[0]} for name, rows in counted.items()},
        **{f"torch / {name}": ratio(whole, "torch", name) for name in WAYS[1:]},
    }


if __name__ == "__main__":
    main()
