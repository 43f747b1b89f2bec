"""Greedy generation (pass@1 at temperature 0), resumable item by item.

All adapters of a base model share one engine, or each is merged into it first, as the paper does (`populora.evals.merging`). An engine
takes one stop text. Where a template has several, a response is cut at the others afterwards, which gives the same text, since greedy
tokens do not depend on what follows them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from populora.core.config import Config
from populora.core.types import Generation, Request
from populora.engine.model.base_shape import read_base_shape
from populora.engine.model.loading import load_tokenizer
from populora.engine.sampling.sampler import Sampler, StaticRequests
from populora.engine.sampling.token_sampling import decode
from populora.evals.completions import CompletionLog, Progress, cut, open_completion_logs
from populora.evals.eval_task import EvalPrompts, EvalTask, render_prompts
from populora.evals.folder import snapshot_adapters, update_evaluation
from populora.evals.loaded_adapters import LoadedAdapters, load_adapters, open_engine, read_checked
from populora.evals.merging import merged, require_peft
from populora.evals.models import EvalModels
from populora.evals.prompts import Template
from populora.evals.records import Completion, EvalModel
from populora.tasks.render import load_prompts

Engine = Callable[[Config, LoadedAdapters, str], AbstractContextManager[Sampler]]
"""`populora.evals.loaded_adapters.open_engine`, or a replacement."""


@dataclass(frozen=True)
class EvalPlan:
    """What will be generated: prompts of each benchmark for each model, with merged models instead of adapters if ``merge``."""

    models: EvalModels
    prompts: tuple[EvalPrompts, ...]
    merge: bool = False

    def settings(self) -> dict[str, Any]:
        """The settings that completions depend on, apart from the models."""
        base, backend = self.models.config.base, self.models.config.engine.backend
        benchmarks = {one.benchmark.name: one.settings() for one in self.prompts if one.prompts}
        described = {"path": base.path, "dtype": base.dtype, "prompts": base.prompts}
        return {"base": described, "backend": backend, "merged": self.merge, "models": {}, "benchmarks": benchmarks}


def make_plan(models: EvalModels, tasks: Sequence[EvalTask], merge: bool = False) -> EvalPlan:
    """Render the prompts and check the adapters. Raises `ConfigError`, and `AdapterError` for an adapter that cannot be evaluated."""
    config, shapes = models.config, read_base_shape(models.config.base)
    tokenizer, prompts = load_tokenizer(config.base), load_prompts(config.base.prompts, config.tasks)
    rendered = tuple(render_prompts(task, tokenizer, shapes.context, config.selfplay, prompts) for task in tasks)
    adapters = [model.adapter for model in models.models if model.adapter]
    if merge:
        require_peft()
        for adapter in adapters:
            read_checked(adapter, shapes)
    else:
        load_adapters(adapters, shapes)
    return EvalPlan(models, rendered, merge)


def generate(plan: EvalPlan, out: Path, progress: Progress, engine: Engine = open_engine) -> None:
    """Generate all completions that ``out`` does not have yet. The caller holds the lock of ``out``, which exists.

    Raises `ConfigError` where ``out`` has an evaluation with other settings, `AdapterError` for an adapter that differs when merged, and
    what engines raise.
    """
    update_evaluation(out, plan.settings())
    models = snapshot_adapters(plan.models.models, out, plan.models.run_id)
    tokenizer = load_tokenizer(plan.models.config.base)
    logs = open_completion_logs([one for one in plan.prompts if one.prompts], models, out, progress)
    missing = [log for log in logs if log.missing]
    for batch in _merged_batches(plan, models, missing, out) if plan.merge else _shared_batch(plan, models, missing):
        _run_batch(batch, engine, tokenizer)
    for log in logs:
        log.close()


@dataclass(frozen=True)
class EngineBatch:
    """The completion logs that one engine fills. ``slots`` are adapter slots by model, -1 for the bare base model."""

    config: Config
    loaded: LoadedAdapters
    slots: Mapping[str, int]
    logs: Sequence[CompletionLog]
    base_sha256: str = ""


def _shared_batch(plan: EvalPlan, models: Sequence[EvalModel], missing: Sequence[CompletionLog]) -> Iterator[EngineBatch]:
    if missing:
        config, adapted = plan.models.config, [model for model in models if model.adapter]
        loaded = load_adapters([model.adapter for model in adapted if model.adapter], read_base_shape(config.base))
        slots = {model.name: adapted.index(model) if model in adapted else -1 for model in models}
        yield EngineBatch(config, loaded, slots, missing, plan.models.base_sha256)


def _merged_batches(plan: EvalPlan, models: Sequence[EvalModel], missing: Sequence[CompletionLog], out: Path) -> Iterator[EngineBatch]:
    """Each model merged, as a plain base model, which is deleted afterwards."""
    config = plan.models.config
    empty = load_adapters([], read_base_shape(config.base))
    for model in models:
        logs = [log for log in missing if log.model == model.name]
        if logs and model.adapter:
            probes = [prompt for log in logs for prompt in log.prompts.prompts.values()]
            folder = out / f"merged-{model.name}"
            with merged(config.base, model.adapter, folder, probes):
                yield EngineBatch(replace(config, base=replace(config.base, path=str(folder))), empty, {model.name: -1}, logs)
        elif logs:
            yield EngineBatch(config, empty, {model.name: -1}, logs, plan.models.base_sha256)


def _run_batch(batch: EngineBatch, engine: Engine, tokenizer: Any) -> None:
    """Sample the missing items; logs with equal limits are sampled together. Nothing keeps the model afterwards."""
    response = max(log.prompts.max_tokens for log in batch.logs)
    longest = max(log.prompts.longest_prompt + log.prompts.max_tokens for log in batch.logs)
    groups: defaultdict[tuple[int, str], dict[Request, CompletionLog]] = defaultdict(dict)
    for log in batch.logs:
        group = groups[log.prompts.max_tokens, (*log.prompts.template.stop, "")[0]]
        for item in log.missing:
            key = ("evaluation", log.prompts.benchmark.name, item)
            group[Request(log.prompts.prompts[item], batch.slots[log.model], 1, key)] = log
    with engine(batch.loaded.config(batch.config, longest - response, response), batch.loaded, batch.base_sha256) as sampler:
        for (max_tokens, stop), requests in groups.items():
            for request, (generation,) in sampler.stream(StaticRequests(list(requests)), max_tokens, 0.0, stop):
                log = requests[request]
                log.add(to_completion(str(request.key[-1]), request.prompt, generation, log.prompts.template, tokenizer))


def to_completion(item: str, prompt: str, generation: Generation, template: Template, tokenizer: Any) -> Completion:
    """Cut a generation at the first stop text and count its tokens. ``solve`` ends with its stop text, which stays."""
    text, count, stopped = generation.text, len(generation.tokens), generation.stopped
    if template.kind != "solve":
        control = _control_tokens(template.stop, tokenizer)
        end = next((index for index, token in enumerate(generation.tokens) if token in control), None)
        if end is not None:
            text, count, stopped = decode(tokenizer, generation.tokens[:end]), end + 1, True
        if _has_stop(text, template.stop):
            prefixes = range(1, count)
            needed = bisect_left(prefixes, True, key=lambda length: _has_stop(decode(tokenizer, generation.tokens[:length]), template.stop))
            text, count, stopped = cut(text, template.stop), needed + 1, True
    return Completion(item, text, prompt, "stop" if stopped else "length", len(generation.prompt_tokens), count)


def _has_stop(text: str, stop: Sequence[str]) -> bool:
    return any(one in text for one in stop)


def _control_tokens(stop: Sequence[str], tokenizer: Any) -> set[int]:
    """Ids of the stop texts that are control tokens, which decoding leaves out."""
    ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in stop]
    return {one[0] for one in ids if len(one) == 1 and not decode(tokenizer, one)}
