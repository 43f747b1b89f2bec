"""Greedy generation (pass@1 at temperature 0) for the sources of an evaluation, resumable item by item.

All adapters of a base are served by one engine, or each is merged into the base first, as the paper does (`populora.evals.merging`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from populora.core.config import Config
from populora.core.errors import AdapterError
from populora.engine.model.loading import load_tokenizer
from populora.engine.model.shapes import base_shapes
from populora.engine.planning.model_shape import ModelShape
from populora.engine.sampling.protocol import Sampler
from populora.evals.answering import answer
from populora.evals.asking import Asked, Paper, ask
from populora.evals.completions import Progress, Sitting, sittings
from populora.evals.generation_file import agree, note, record
from populora.evals.members import NOTHING, examine
from populora.evals.merging import merged, needs_peft
from populora.evals.pinning import pin, unpinned
from populora.evals.serving import Served, open_engine, read_fitting, serve
from populora.evals.sources import Source, Sources
from populora.runs.checkpoint import SavedMembers
from populora.tasks.render import load_prompts

Engine = Callable[[Config, Served], AbstractContextManager[Sampler]]
"""What samples: `populora.evals.serving.open_engine`, or one that has it done elsewhere."""
Begun = Callable[["Coverage"], None]
"""Called once, when all is checked and written down and before the first completion."""
MERGED = "merged"


@dataclass(frozen=True)
class GenerationPlan:
    """What is to be generated; with ``merge`` by merged models instead of adapters."""

    sources: Sources
    papers: Sequence[Paper]
    merge: bool = False
    checkpoint: SavedMembers | None = None
    """That new members of a run are taken out of; by default the newest."""


@dataclass(frozen=True)
class Coverage:
    """What is generated: by which sources, with their adapters as they are kept, and what each benchmark asked and left out."""

    sources: tuple[Source, ...]
    asked: tuple[Asked, ...]

    @property
    def unasked(self) -> dict[str, str]:
        """Benchmarks of which no item could be asked, with the reason."""
        return {one.benchmark.name: next(iter(one.left_out.values()), "no_items") for one in self.asked if not one.prompts}


@dataclass(frozen=True)
class _Round:
    """What one engine answers."""

    config: Config
    served: Served
    slots: Mapping[str, int]
    due: Sequence[Sitting]


def generate(
    plan: GenerationPlan, out: Path, progress: Progress, engine: Engine = open_engine, begun: Begun = lambda coverage: None
) -> Coverage:
    """Generate whatever ``out`` does not have yet. The caller holds the lock of ``out``, which exists.

    Where nothing can be asked, nothing is written. Raises `ConfigError` where ``out`` was begun with other settings, another base or other
    sources, where a run was trained on another base, or a benchmark cannot be asked; `AdapterError` for an adapter of another base and for
    one that is not the same when merged, `RunDirectoryError` for a run without a checkpoint, and what engines raise.
    """
    config = plan.sources.config
    shapes, tokenizer = base_shapes(config.base), load_tokenizer(config.base)
    prompts = load_prompts(config.base.prompts, config.tasks)
    asked = tuple(ask(paper, tokenizer, shapes.context, config.selfplay, prompts) for paper in plan.papers)
    coverage = Coverage(plan.sources.each, asked)
    if len(coverage.unasked) == len(asked):
        begun(coverage)
        return coverage
    if plan.merge:
        needs_peft()
    if bad := unfit(plan.sources, plan.merge):
        raise AdapterError(next(iter(bad.values())))
    each, sources = _begun(plan, asked, out, progress)
    begun(replace(coverage, sources=sources.each))
    due = [sitting for sitting in each if sitting.missing]
    for one in _apart(due, sources, shapes, out) if plan.merge else _together(due, sources, shapes):
        _answered(one, engine, tokenizer)
    for sitting in each:
        sitting.close()
    return replace(coverage, sources=sources.each)


def _begun(plan: GenerationPlan, asked: Sequence[Asked], out: Path, progress: Progress) -> tuple[list[Sitting], Sources]:
    """All that is to be done, and the sources as they are kept. What it is done with is compared with what ``out`` was begun with before
    the base is loaded to be examined, and written down after that; a base that has nothing to do is not loaded."""
    config = plan.sources.config
    base = {"path": config.base.path, "dtype": config.base.dtype, "prompts": config.base.prompts}
    described = {one.benchmark.name: one.described() for one in asked}
    settings = {"base": base, "backend": config.engine.backend, "merged": plan.merge, "benchmarks": described}
    agree(out, settings)
    each = sittings([one for one in asked if one.prompts], [source.name for source in plan.sources.each], out, progress)
    examined = NOTHING
    if unpinned(plan.sources, out) or any(sitting.missing for sitting in each):
        examined = examine(config.base, plan.sources.runs)
        agree(out, {"base": {"sha256": examined.sha256}})
        base["sha256"] = examined.sha256
    sources = pin(plan.sources, out, plan.checkpoint)
    record(out, settings)
    return each, sources


def unfit(sources: Sources, merge: bool) -> dict[str, str]:
    """Sources whose adapter cannot be evaluated, with the reason: it is damaged, for another base, or to be merged only."""
    shapes, found = base_shapes(sources.config.base), {}
    for source in sources.each:
        if source.adapter and not source.run:  # a member is taken out of a checkpoint, which is compared with the base then
            try:
                read_fitting(source.adapter, shapes) if merge else serve([source.adapter], shapes)
            except AdapterError as error:
                found[source.name] = str(error)
    return found


def _answered(one: _Round, engine: Engine, tokenizer: Any) -> None:
    """A function of its own, so that nothing holds the model when the next is merged."""
    response = max(sitting.asked.max_tokens for sitting in one.due)
    longest = max(sitting.asked.longest + sitting.asked.max_tokens for sitting in one.due)
    with engine(one.served.settings(one.config, longest - response, response), one.served) as sampler:
        answer(one.due, one.slots, sampler, tokenizer)


def _together(due: Sequence[Sitting], sources: Sources, shapes: ModelShape) -> Iterator[_Round]:
    """All sources in one engine; the bare base has slot -1."""
    if due:
        adapted = [source for source in sources.each if source.adapter]
        slots = {source.name: adapted.index(source) if source in adapted else -1 for source in sources.each}
        yield _Round(sources.config, serve([source.adapter for source in adapted if source.adapter], shapes), slots, due)


def _apart(due: Sequence[Sitting], sources: Sources, shapes: ModelShape, out: Path) -> Iterator[_Round]:
    """Each source merged, as a plain base; the merged model is gone when it has answered."""
    config, bare = sources.config, serve([], shapes)
    for source in sources.each:
        own = [sitting for sitting in due if sitting.source == source.name]
        if own and source.adapter:
            probes = [prompt for sitting in own for prompt in sitting.asked.prompts.values()]
            folder = out / f"{MERGED}-{source.name}"
            with merged(config.base, source.adapter, folder, probes) as difference:
                note(out, source.name, "merged_difference", difference)
                yield _Round(replace(config, base=replace(config.base, path=str(folder))), bare, {source.name: -1}, own)
        elif own:
            yield _Round(config, bare, {source.name: -1}, own)
