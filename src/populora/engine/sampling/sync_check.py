"""Check that the sampler applies the learner's adapters, and that trained adapters have an effect.

An adapter that does nothing and a sampler with other weights than the learner are the silent failures of LoRA training. The learner
compares the log-probabilities of every row before each update. This check queries the sampler again after the update, so that the run
stops before a step is built on weights that did not reach it.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import torch

from populora.core.errors import AdapterEffectError, BaseModelError
from populora.core.types import Generation, Request
from populora.engine.bank import Bank
from populora.engine.learning.learner import Learner
from populora.engine.model.adapted_model import MAX_TOKEN_FACTOR
from populora.engine.sampling.sampler import Sampler

TOKENS = 8  # greedy tokens per probe
LONGER = 4  # times as many where these differ
SAMPLES = 4  # of each probe of the bare base
ROUNDING = 2.0
"""The adapters' log-probabilities may differ by this many times as much as those of the bare base, and these by this many times
``learner.agreement``. In bf16 on a GPU, random weights in the shape of Qwen2.5-1.5B differed by 1.3 times that
(benchmarks/speed/gpu_steps.json)."""


def agreement_of(learner: Learner, sampler: Sampler, probes: Sequence[str]) -> float:
    """Return the mean difference (nats) to allow between sampler and learner: ``learner.agreement``, or `ROUNDING` times that of the bare
    base's answers to the probes if this is more. In bf16, rounding alone can be more where a base is unsure of its tokens.

    Raises `BaseModelError` if the bare base's is more than `ROUNDING` times ``learner.agreement``.
    """
    requests = [Request(probe, -1, SAMPLES, ("sync-check", "base", index)) for index, probe in enumerate(probes)]
    answers = [answer for samples in sampler.generate(requests, TOKENS, 1.0, "") for answer in samples]
    rounding, _ = _mean_and_worst((_sampled(answers) - learner.logprobs({-1: answers})[-1][1]).abs())
    if not rounding <= ROUNDING * learner.agreement:
        raise BaseModelError(
            f"sampler and learner must agree on the bare base within {ROUNDING * learner.agreement} nats in the mean, but differ by "
            f'{rounding:.2e}: they do not compute the same model. Set base.dtype = "float32", or engine.backend = "inprocess", whose '
            "sampler reads the learner's own weights, and report it."
        )
    return max(learner.agreement, ROUNDING * rounding)


def check_adapter_sync(learner: Learner, sampler: Sampler, bank: Bank, probes: Sequence[str], slots: Iterable[int]) -> None:
    """Sample the probes greedily under each of ``slots`` and compare with learner and bare base.

    Slots whose B is zero are untrained and pass. Raises `AdapterEffectError` with the slot when a trained adapter changes no
    log-probability, or when sampler and learner differ by more than ``learner.agreement`` in the mean without the worst token, or in one
    token by more than `MAX_TOKEN_FACTOR` times that, and answers four times as long confirm it: their mean does, or more than one token.
    """
    answers_of = _answers(sampler, probes, sorted(slots), TOKENS)
    logprobs = learner.logprobs(answers_of)
    for slot, answers in answers_of.items():
        learned, bare = logprobs[slot]
        if _outliers(learner.agreement, answers, learned):
            _check_longer(learner, slot, _answers(sampler, probes, [slot], LONGER * TOKENS)[slot])
        if not bank.untrained(slot) and bool((learned == bare).all()):
            raise AdapterEffectError(
                f"slot {slot}: a trained adapter must change the base's log-probabilities, but changes none on {len(probes)} probes. "
                "Its scale (lora.alpha) is zero, learner.learning_rate is too small for the base's precision, learner.warmup_steps are "
                "too many, learner.decay_steps too few, or the model does not read it."
            )


def _answers(sampler: Sampler, probes: Sequence[str], slots: Sequence[int], tokens: int) -> dict[int, list[Generation]]:
    """Let each slot's adapter answer each probe greedily."""
    requests = [Request(probe, slot, 1, ("sync-check", slot, index)) for slot in slots for index, probe in enumerate(probes)]
    samples = zip(requests, sampler.generate(requests, tokens, 0.0, ""), strict=True)
    answers: dict[int, list[Generation]] = {slot: [] for slot in slots}
    for request, (answer,) in samples:
        answers[request.slot].append(answer)
    return answers


def _outliers(agreement: float, answers: Sequence[Generation], learned: torch.Tensor) -> float:
    """Return how many tokens sampler and learner differ on too much; infinity if it is too much in the mean without the worst."""
    differences = (_sampled(answers) - learned).abs()
    mean, _ = _mean_and_worst(differences)
    return int((~(differences <= MAX_TOKEN_FACTOR * agreement)).sum()) if mean <= agreement else math.inf


def _check_longer(learner: Learner, slot: int, answers: Sequence[Generation]) -> None:
    """Raise `AdapterEffectError` if sampler and learner differ too much on longer answers, too. In bf16 a single token may."""
    (learned, bare), sampled = learner.logprobs({slot: answers})[slot], _sampled(answers)
    limit = MAX_TOKEN_FACTOR * learner.agreement
    if _outliers(learner.agreement, answers, learned) > 1:
        mean, worst = _mean_and_worst((sampled - learned).abs())
        ignored = float((sampled - bare).abs().max()) <= limit < float((learned - bare).abs().max())
        cause = "answers as the bare base" if ignored else "has another adapter, perhaps an older one"
        raise AdapterEffectError(
            f"slot {slot}: sampler and learner must agree within {learner.agreement} nats in the mean and {limit} for all tokens but one, "
            f"but differ by {mean:.2e} and {worst:.2e}: the sampler {cause}. Go on from the last checkpoint with `populora resume`; if it "
            "happens again, set engine.backend to 'inprocess', whose sampler reads the learner's own weights, and report it."
        )


def _sampled(answers: Sequence[Generation]) -> torch.Tensor:
    return torch.from_numpy(np.concatenate([answer.logprobs for answer in answers], dtype=np.float32))


def _mean_and_worst(differences: torch.Tensor) -> tuple[float, float]:
    """Return the mean of differences of log-probabilities without the worst token, and that of the worst token."""
    ordered = differences.sort().values
    return float(ordered[:-1].sum() / max(len(ordered) - 1, 1)), float(ordered.max())
