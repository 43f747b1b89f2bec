"""Check that the sampler applies the learner's adapters, and that trained adapters have an effect.

An adapter that does nothing and a sampler with other weights than the learner are the silent failures of LoRA training. The learner
compares the log-probabilities of every row before each update. This check queries the sampler again after the update, so that the run
stops before a step is built on weights that did not reach it.
"""

from collections.abc import Sequence

import torch

from populora.core.errors import AdapterEffectError, BaseModelError
from populora.core.types import Request
from populora.engine.learning.learner import Learner
from populora.engine.model.adapted_model import MAX_TOKEN_FACTOR
from populora.engine.model.bank import LoraBank
from populora.engine.sampling.sampler import Sampler

TOKENS = 8  # greedy tokens per probe
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
    sampled = torch.tensor([value for answer in answers for value in answer.logprobs])
    rounding, _ = _differences(sampled, learner.logprobs(-1, answers))
    if not rounding <= ROUNDING * learner.agreement:
        raise BaseModelError(
            f"sampler and learner must agree on the bare base within {ROUNDING * learner.agreement} nats in the mean, but differ by "
            f'{rounding:.2e}: they do not compute the same model. Set base.dtype = "float32", or engine.backend = "inprocess", whose '
            "sampler reads the learner's own weights, and report it."
        )
    return max(learner.agreement, ROUNDING * rounding)


def check_adapter_sync(
    learner: Learner, sampler: Sampler, bank: LoraBank, probes: Sequence[str], slots: Sequence[int] | None = None
) -> dict[int, float]:
    """Sample the probes greedily under each of ``slots`` (default: all) and compare with learner and bare base. Returns for each trained
    slot the largest absolute difference in log-probability (nats) between its adapter and the bare base.

    Slots whose B is zero are untrained and pass. Raises `AdapterEffectError` with the slot when a trained adapter changes no
    log-probability, or when sampler and learner differ by more than ``learner.agreement`` in the mean without the worst token, or by
    more than `MAX_TOKEN_FACTOR` times that in the worst token (which would decide the mean of so few).
    """
    slots = range(bank.slots) if slots is None else sorted(slots)
    requests = [Request(probe, slot, 1, ("sync-check", slot, index)) for slot in slots for index, probe in enumerate(probes)]
    answers = [answer[0] for answer in sampler.generate(requests, TOKENS, 0.0, "")]
    effects: dict[int, float] = {}
    for slot in slots:
        slot_answers = [answer for request, answer in zip(requests, answers, strict=True) if request.slot == slot]
        learned, bare = learner.logprobs(slot, slot_answers), learner.logprobs(-1, slot_answers)
        sampled = torch.tensor([value for answer in slot_answers for value in answer.logprobs])
        _check_agreement(slot, learner.agreement, sampled, learned, bare)
        if not bank.untrained(slot):
            effects[slot] = float((learned - bare).abs().max())
            if effects[slot] == 0.0:
                raise AdapterEffectError(
                    f"slot {slot}: a trained adapter must change the base's log-probabilities, but changes none on {len(probes)} probes. "
                    "Its scale (lora.alpha) is zero, learner.learning_rate is too small for the base's precision, or the model does not "
                    "read it."
                )
    return effects


def _check_agreement(slot: int, agreement: float, sampled: torch.Tensor, learned: torch.Tensor, bare: torch.Tensor) -> None:
    """Raise `AdapterEffectError` if sampler and learner differ too much."""
    mean, worst = _differences(sampled, learned)
    limit = MAX_TOKEN_FACTOR * agreement
    if not (mean <= agreement and worst <= limit):
        ignored = float((sampled - bare).abs().max()) <= limit < float((learned - bare).abs().max())
        cause = "answers as the bare base" if ignored else "has another adapter, perhaps an older one"
        raise AdapterEffectError(
            f"slot {slot}: sampler and learner must agree within {agreement} nats in the mean and {limit} for each token, but differ by "
            f"{mean:.2e} and {worst:.2e}: the sampler {cause}. Go on from the last checkpoint with `populora resume`; if it happens "
            "again, set engine.backend to 'inprocess', whose sampler reads the learner's own weights, and report it."
        )


def _differences(sampled: torch.Tensor, learned: torch.Tensor) -> tuple[float, float]:
    """Return the mean difference of log-probabilities without the worst token, and that of the worst token."""
    differences = (sampled - learned).abs().sort().values
    return float(differences[:-1].sum() / max(len(differences) - 1, 1)), float(differences.max())
