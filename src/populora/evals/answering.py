"""Sources answer benchmarks by a sampler: greedily, all of them at once, each completion written as soon as it is there.

An engine takes one stop text. Where a template has several, it is given the first, and a response is cut at whichever comes first when it
is there: the same text, since greedy tokens do not depend on what follows them. Stop texts that are control tokens are looked for among
the ids, because decoding leaves them out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from populora.core.types import Generation, Request
from populora.engine.sampling.protocol import Sampler
from populora.engine.sampling.requests import Given
from populora.engine.sampling.token_sampling import decode
from populora.evals.completions import Sitting, cut
from populora.evals.prompts import Template
from populora.evals.records import Completion


def answer(due: Sequence[Sitting], slots: Mapping[str, int], sampler: Sampler, tokenizer: Any) -> None:
    """Have the missing items of sittings answered; ``slots`` are the sources' own. Sittings with equal limits are sampled together."""
    alike: defaultdict[tuple[int, str], list[Sitting]] = defaultdict(list)
    for sitting in due:
        alike[sitting.asked.max_tokens, (*sitting.asked.template.stop, "")[0]].append(sitting)
    for (max_tokens, stop), some in alike.items():
        requests = {
            Request(one.asked.prompts[item], slots[one.source], 1, ("evaluation", one.asked.benchmark.name, item)): one
            for one in some
            for item in one.missing
        }
        for request, (made,) in sampler.stream(Given(list(requests)), max_tokens, 0.0, stop):
            sitting = requests[request]
            sitting.add(completed(str(request.key[-1]), request.prompt, made, sitting.asked.template, tokenizer))


def completed(item: str, prompt: str, made: Generation, template: Template, tokenizer: Any) -> Completion:
    """What a generation says up to the first stop text, and in how many tokens. ``solve`` ends with its stop text, which stays."""
    text, count = made.text, len(made.tokens)
    stopped = made.stopped
    if template.kind != "solve":
        control = _control(template.stop, tokenizer)
        place = next((index for index, token in enumerate(made.tokens) if token in control), None)
        if place is not None:
            text, count, stopped = decode(tokenizer, made.tokens[:place]), place + 1, True
        if _ends(text, template.stop):
            needed = bisect_left(range(1, count), True, key=lambda first: _ends(decode(tokenizer, made.tokens[:first]), template.stop))
            text, count, stopped = cut(text, template.stop), needed + 1, True
    return Completion(item, text, prompt, "stop" if stopped else "length", len(made.prompt_tokens), count)


def _ends(text: str, stop: Sequence[str]) -> bool:
    return any(one in text for one in stop)


def _control(stop: Sequence[str], tokenizer: Any) -> set[int]:
    """Ids of the stop texts that are one token each which decoding leaves out."""
    ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in stop]
    return {one[0] for one in ids if len(one) == 1 and not decode(tokenizer, one)}
