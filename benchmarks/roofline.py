"""Compare a step of 4T+4S on the tiny base with the least time that its arithmetic and its memory traffic need, on one thread.

    python -m benchmarks.roofline [--rounds 5] [--kernels torch]        writes roofline.json; two minutes

The least time of a phase is the larger of FLOPs / attainable FLOP/s (the best product of MKL and oneDNN) and bytes / attainable bytes/s
(reading memory), each that of the fastest round, because other work only slows the machine. FLOPs are those that the result needs
(`populora.engine.planning.step_time`), summed over all texts of the step. Bytes are the weights and adapters, read once by each forward and
each backward, and keys and values; those of a prompt are read once for a token of all its responses. Decoding has the fewest steps that are
possible: those of a proposal and its longest attempt, which are one after the other. All bytes count as coming from memory, although caches
may hold a small base.

Every round repeats one step of a run with the preset's overlap. ``decode`` includes the head and the draw. ``rest of the sampler`` is the
time between the calls of the decoder. Verification has no least time, so that of the step is the sum of prefill, decode and update.
``validate`` and ``judge`` mostly overlap with the sampler, and are no part of the step but for ``wait for verdicts``.
"""

import timeit
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from benchmarks.measuring import bar, columns, machine, noise, options, spread, write_results
from benchmarks.speed.replay import Replay, ReplayedStep, before_step, check_same
from benchmarks.speed.timed_decoders import TimedDecoders
from benchmarks.step import toy

from populora.core.config import Config
from populora.core.config_file import load_config
from populora.core.presets import settings_file
from populora.engine.learning.batching import micro_batches
from populora.engine.model.base_shape import read_base_shape
from populora.engine.planning.model_shape import ITEMSIZE, ModelShape
from populora.engine.planning.step_time import Texts, base_flops, decode_flops, prompt_flops, train_flops, weight_bytes

GOAL = 4.0
SHAPES = ((2048, 1024, 1024), (2048, 896, 4864), (4096, 2048, 2048))
"""Rows, inputs, outputs of the products."""
BYTES = 512 << 20
"""Of the array that is read: larger than the caches."""
STEP = 3
"""The step of the run that is measured: adapters are trained before."""
Groups = list[tuple[int, list[int]]]
"""Tokens of each prompt, and of its responses without their last token, which is never fed."""
Work = Mapping[str, Mapping[str, float]]
"""``FLOP`` and ``bytes`` of each phase."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__, Path(__file__).with_suffix(".json"), rounds=5)
    parser.add_argument("--kernels", choices=("auto", "torch"), default="auto")
    parser.add_argument("--toy", action="store_true", help="a few short prompts, to see that it works: the figures mean nothing")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    config = load_config(settings_file("tiny_4t4s"))
    config = replace(toy(config) if args.toy else config, threads=1, base=replace(config.base, kernels=args.kernels))
    about = {"machine": machine("populora", "torch"), "rounds": args.rounds, "toy": args.toy}
    limits = attainable(args.rounds)
    with before_step(config, STEP) as replay:
        sampler: Any = replay.run.sampler
        about["decoder"] = sampler.decoder
        sampler.decoders = decoders = TimedDecoders(sampler.decoders)
        first = replay.once()
        rows, disturbance = noise(lambda: [measure(replay, first, decoders) for _ in range(args.rounds)])
    about |= {"limits": limits, "sampled tokens": first.sampled}
    write_results(args.out, {**about, **judge(step_work(config, first), limits, rows), "noise": disturbance})


def attainable(rounds: int) -> dict[str, float]:
    """Return the best rate of a product, 10^9 FLOP/s, and the rate of reading memory, 10^9 bytes/s."""
    best = max(rate for shape in SHAPES for rate in measure_products(*shape, rounds).values())
    return {"GFLOP/s": best, "GB/s": rate(BYTES, torch.ones(BYTES // 4).sum, rounds)}


def measure_products(rows: int, inputs: int, outputs: int, rounds: int) -> dict[str, float]:
    """Return 10^9 FLOP/s of one float32 product by library."""
    x, weight = torch.randn(rows, inputs), torch.randn(outputs, inputs)
    cases: dict[str, Callable[[], object]] = {
        "MKL": lambda: torch.nn.functional.linear(x, weight),
        "oneDNN": lambda: torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], ""),
    }
    return {name: rate(2 * rows * inputs * outputs, case, rounds) for name, case in cases.items()}


def rate(amount: float, work: Callable[[], object], rounds: int) -> float:
    """Return 10^9 units a second of wall time in the fastest round, after one that is not counted."""
    work()
    return round(1e-9 * amount / min(timeit.repeat(work, number=1, repeat=rounds)), 1)


def measure(replay: Replay, first: ReplayedStep, decoders: TimedDecoders) -> dict[str, float]:
    """Repeat the step. Return wall seconds by phase, and those of verification that overlapped with sampling."""
    decoders.spent.clear()
    again = replay.once()
    check_same(first, again)
    seconds, prefill, decode = again.seconds, decoders.spent["prefill"], decoders.spent["decode"]
    phases = {"prefill": prefill, "decode": decode, "rest of the sampler": seconds["sample"] - prefill - decode, "update": seconds["train"]}
    verification = {"wait for verdicts": seconds["verify"], **again.record.overlapped}
    return {"step": again.wall, **phases, **verification, "rest of the step": seconds["rest"]}


def step_work(config: Config, step: ReplayedStep) -> Work:
    """Return the work of the phases of a recorded step."""
    shape, record = read_base_shape(config.base), step.record
    answers = [(proposal.author, proposal.generation) for proposal in record.proposals]
    answers += [(attempt.student, attempt.generation) for attempt in record.attempts]
    weights, cached = weight_bytes(config, shape, len(answers)), shape.kv_bytes(ITEMSIZE[config.base.dtype])
    sampled = grouped((member, answer.prompt_tokens, answer.tokens) for member, answer in answers)
    trained = grouped((row.slot, row.prompt_tokens, row.tokens) for row in step.rows)
    flops, batches = phase_flops(config, shape, sampled, trained), len(micro_batches(step.rows, config.learner.micro_batch_tokens))
    proposed = {proposal.problem.id: len(proposal.generation.tokens) for proposal in record.proposals if proposal.problem}
    steps = max(len(proposal.generation.tokens) for proposal in record.proposals)
    steps = max(steps, *(proposed.get(attempt.problem.id, 0) + len(attempt.generation.tokens) for attempt in record.attempts))
    read = {
        "prefill": weights + cached * sum(prompt for prompt, _ in sampled),
        "decode": steps * weights + cached * sum(map(tokens_read, sampled)),
        "update": 2 * batches * weights,
    }
    return {phase: {"FLOP": flops[phase], "bytes": read[phase]} for phase in flops}


def grouped(texts: Iterable[tuple[str | int, Sequence[int], Sequence[int]]]) -> Groups:
    """Group texts (whose, prompt, response) by adapter and prompt."""
    lengths: dict[tuple[str | int, tuple[int, ...]], list[int]] = {}
    for member, prompt, response in texts:
        lengths.setdefault((member, tuple(prompt)), []).append(len(response) - 1)
    return [(len(prompt), responses) for (_, prompt), responses in lengths.items()]


def phase_flops(config: Config, shape: ModelShape, sampled: Groups, trained: Groups) -> dict[str, float]:
    """Count FLOPs response by response, with its share of its prompt. The head computes one token more than a response feeds."""
    adapter = shape.adapter(config.lora.rank, config.lora.targets)
    answers, rows = ([Texts(1 / len(all_), 1, prompt, fed) for prompt, all_ in groups for fed in all_] for groups in (sampled, trained))
    return {
        "prefill": sum(prompt_flops(shape, adapter, answer) for answer in answers),
        "decode": sum(decode_flops(shape, adapter, answer) + 2 * shape.head for answer in answers),
        "update": sum(
            train_flops(shape, adapter, row, config.learner.activation_checkpointing) + 4 * shape.head + base_flops(config, shape, row)
            for row in rows
        ),
    }


def tokens_read(group: tuple[int, Sequence[int]]) -> float:
    """Return how many tokens' keys and values the responses to a prompt read, all decoded together."""
    prompt, responses = group
    return prompt * max(responses) + sum(fed * (fed + 1) / 2 for fed in responses)


def judge(work: Work, limits: Mapping[str, float], rows: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Return what each phase needs at least, and measured seconds over it; ``limits`` as `attainable`, ``rows`` as `measure`."""
    rates = {"FLOP": 1e9 * limits["GFLOP/s"], "bytes": 1e9 * limits["GB/s"]}
    needed = {phase: {unit: amount / rates[unit] for unit, amount in amounts.items()} for phase, amounts in work.items()}
    least = {phase: max(seconds.values()) for phase, seconds in needed.items()}
    least["step"] = sum(least.values())
    ratios = {phase: spread([row[phase] / seconds for row in rows]) for phase, seconds in least.items()}
    return {
        "10^9": {phase: {unit: round(1e-9 * amount, 2) for unit, amount in amounts.items()} for phase, amounts in work.items()},
        "least seconds": {phase: round(seconds, 3) for phase, seconds in least.items()},
        "bound by": {phase: max(seconds, key=lambda unit: seconds[unit]) for phase, seconds in needed.items()},
        "seconds": columns(rows),
        "measured / least": ratios,
        "share of the step": {name: spread([row[name] / row["step"] for row in rows]) for name in rows[0] if name != "step"},
        "bars": {"step": bar(GOAL, ratios["step"]["median"])},
    }


if __name__ == "__main__":
    main()
