"""Greedy generation (pass@1 at temperature 0), resumable item by item.

All adapters of a base model share one engine, or each is merged into it first, as the paper does. An engine takes one stop text; a response
is cut at the others afterwards, which gives the same text, since greedy tokens do not depend on what follows them.
"""

import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from populora.core.config import Config
from populora.core.errors import ConfigError
from populora.core.invocation import install_extra
from populora.core.types import Generation, Request
from populora.engine.model.base_shape import read_base_shape
from populora.engine.model.loading import load_tokenizer
from populora.engine.sampling.sampler import StaticRequests
from populora.engine.sampling.token_sampling import decode
from populora.evals.completions import CompletionLog, Progress, cut, open_completion_logs
from populora.evals.eval_records import Completion, EvalModel
from populora.evals.folder import snapshot_adapters, update_evaluation
from populora.evals.loaded_adapters import LoadedAdapters, load_adapters, merge, open_loaded
from populora.evals.models import EvalModels
from populora.evals.prompts import EvalPrompts, EvalTask, Template, render_prompts
from populora.tasks.render import load_prompts


@dataclass(frozen=True)
class EvalPlan:
    """The prompts of each benchmark for each model, with merged models instead of adapters if ``merge``."""

    models: EvalModels
    prompts: tuple[EvalPrompts, ...]
    merge: bool = False

    def settings(self) -> dict[str, Any]:
        """Collect the settings that completions depend on, apart from the models."""
        base, backend = self.models.config.base, self.models.config.engine.backend
        benchmarks = {prompts.benchmark.name: prompts.settings() for prompts in self.prompts}
        values = {"path": base.path, "dtype": base.dtype, "prompts": base.prompts}
        return {"base": values, "backend": backend, "merged": self.merge, "models": {}, "benchmarks": benchmarks}


def make_eval_plan(models: EvalModels, tasks: Sequence[EvalTask], merge: bool = False) -> EvalPlan:
    """Render the prompts and check the adapters. Raises `ConfigError`, and `AdapterError` for an adapter that cannot be evaluated."""
    config, shapes = models.config, read_base_shape(models.config.base)
    tokenizer, prompts = load_tokenizer(config.base), load_prompts(config.base.prompts, config.tasks)
    rendered = tuple(render_prompts(task, tokenizer, shapes.context, config.selfplay, prompts) for task in tasks)
    if merge and not find_spec("peft"):
        raise ConfigError(f"merging takes PEFT, which is not installed: `{install_extra('evaluate')}`, or evaluate without --merge")
    load_adapters([model.adapter for model in models.models if model.adapter], shapes, merge)
    return EvalPlan(models, rendered, merge)


def generate(plan: EvalPlan, out: Path, progress: Progress) -> None:
    """Generate the completions that ``out`` lacks; the caller holds its lock. Raises `ConfigError` for other settings, as engines do."""
    update_evaluation(out, plan.settings())
    models = snapshot_adapters(plan.models.models, out, plan.models.run_id)
    logs = open_completion_logs(plan.prompts, models, out, progress)
    missing = [log for log in logs if log.missing]
    if plan.merge:
        for model in models:
            if of_model := [log for log in missing if log.model == model.name]:
                _fill_merged(of_model, model, plan, out / f"merged-{model.name}")
    elif missing:
        config, adapted = plan.models.config, [model for model in models if model.adapter]
        loaded = load_adapters([model.adapter for model in adapted if model.adapter], read_base_shape(config.base))
        slots = {model.name: adapted.index(model) if model.adapter else -1 for model in models}
        _fill_logs(missing, slots, config, loaded, plan.models.base_sha256)
    for log in logs:
        log.close()


def _fill_merged(logs: Sequence[CompletionLog], model: EvalModel, plan: EvalPlan, folder: Path) -> None:
    """Merge the adapter into a plain base model in ``folder``, which is deleted afterwards. The bare base is used as it is."""
    config, base_sha256 = plan.models.config, plan.models.base_sha256
    nothing = load_adapters([], read_base_shape(config.base))
    try:
        if model.adapter:
            merge(config.base, model.adapter, folder)
            config, base_sha256 = replace(config, base=replace(config.base, path=str(folder))), ""
        _fill_logs(logs, {model.name: -1}, config, nothing, base_sha256)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _fill_logs(logs: Sequence[CompletionLog], slots: Mapping[str, int], config: Config, loaded: LoadedAdapters, base_sha256: str) -> None:
    """Sample the missing items with one engine; logs with equal limits are sampled together. ``slots`` are -1 for the bare base model."""
    tokenizer, response = load_tokenizer(config.base), max(log.prompts.max_tokens for log in logs)
    longest = max(log.prompts.longest_prompt + log.prompts.max_tokens for log in logs)
    groups: defaultdict[tuple[int, str], dict[Request, CompletionLog]] = defaultdict(dict)
    for log in logs:
        group = groups[log.prompts.max_tokens, (*log.prompts.template.stop, "")[0]]
        for item in log.missing:
            key = ("evaluation", log.prompts.benchmark.name, item)
            group[Request(log.prompts.prompts[item], slots[log.model], 1, key)] = log
    with open_loaded(loaded.config(config, longest - response, response), loaded, base_sha256) as sampler:
        for (max_tokens, stop), requests in groups.items():
            for request, (generation,) in sampler.stream(StaticRequests(list(requests)), max_tokens, 0.0, stop):
                log = requests[request]
                log.add(to_completion(str(request.key[-1]), request.prompt, generation, log.prompts.template, tokenizer))


def to_completion(item: str, prompt: str, generation: Generation, template: Template, tokenizer: Any) -> Completion:
    """Cut a generation at the first stop text; its tokens are counted up to where sampling ended. A ``solve`` keeps its stop text."""
    text, stopped = generation.text, generation.stopped
    if template.kind != "solve":
        ids = [tokenizer(stop, add_special_tokens=False)["input_ids"] for stop in template.stop]
        control = {stop[0] for stop in ids if len(stop) == 1 and not decode(tokenizer, stop)}  # which decoding leaves out
        end = next((index for index, token in enumerate(generation.tokens) if token in control), None)
        text = cut(text if end is None else decode(tokenizer, generation.tokens[:end]), template.stop)
        stopped |= end is not None or text != generation.text
    return Completion(item, text, prompt, "stop" if stopped else "length", len(generation.prompt_tokens), len(generation.tokens))
