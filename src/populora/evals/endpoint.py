"""Any endpoint that speaks OpenAI's protocol answers benchmarks, through the ``openai`` client library: which retries, here nothing does.

Raw prompts go to the completions route. A template with turns goes to the chat route as the user's turn alone, since few endpoints let a
client begin the assistant's: its response has the fences that the begun turn would have opened, and no stop text cuts it. What a served
model answers at temperature 0 may still differ from time to time.

An item that the endpoint refuses for good, such as a prompt that is too long for it, is noted with its message in ``refused.json`` and has
no completion; the others are asked, and the same call again asks it again.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from populora.core.config import TasksConfig
from populora.core.errors import ConfigError, EndpointError
from populora.core.invocation import install_extra
from populora.evals.asking import Asked, Paper, ask_elsewhere
from populora.evals.completions import Progress, Sitting, cut, sittings
from populora.evals.generating import Begun, Coverage
from populora.evals.generation_file import record
from populora.evals.records import Completion
from populora.evals.remarks import note_refused
from populora.evals.replies import reply_of
from populora.evals.sources import Source
from populora.tasks.render import load_prompts

MOST_STOPS = 4
"""Stop texts that the protocol takes in one request; a response is cut at the others when it is there."""
RETRIES, SECONDS = 5, 600.0
"""What the client library does with a request before it gives up: so many more tries, each of so long."""
LONGEST = 8096
"""Longest response in tokens where the benchmark has no limit of its own."""
REFUSALS = 5
"""So many items refused before the first answer to a benchmark: it is not the items."""


@dataclass(frozen=True)
class Endpoint:
    """Where a model is served, and how it is asked."""

    base_url: str
    model: str
    key_variable: str = "OPENAI_API_KEY"
    """Environment variable with the API key. Empty: the endpoint takes none."""
    parallel: int = 4
    """Requests under way at a time."""
    route: Literal["template", "chat"] = "template"
    """``chat`` also sends raw prompts as a user's turn, to endpoints that have no completions route."""


@dataclass
class _Course:
    """How the answering of one sitting goes."""

    sitting: Sitting
    refused: dict[str, str] = field(default_factory=dict)
    """By item, what the endpoint said."""
    failed: str = ""
    """The item at which all ends, and why."""
    cause: Exception | None = None


def generate_from(
    endpoint: Endpoint, papers: Sequence[Paper], out: Path, progress: Progress, begun: Begun = lambda coverage: None
) -> Coverage:
    """As `populora.evals.generating.generate`, by an endpoint.

    Raises `ConfigError` without the client library or the key, and `EndpointError` when the endpoint fails or refuses everything: what was
    answered until then is kept. Ctrl-C waits for no answer.
    """
    client = _client(endpoint)
    prompts = load_prompts("azr", TasksConfig())
    asked = tuple(ask_elsewhere(paper, LONGEST, prompts) for paper in papers)
    source = Source(file_name(endpoint.model), "endpoint")
    served = {"role": source.role, "url": endpoint.base_url, "model": endpoint.model, "route": endpoint.route}
    benchmarks = {one.benchmark.name: one.described() for one in asked}
    record(out, {"base": {"path": endpoint.model}, "merged": False, "sources": {source.name: served}, "benchmarks": benchmarks})
    each = sittings(asked, [source.name], out, progress)
    coverage = Coverage((source,), asked)
    begun(coverage)
    asyncio.run(_answer_all(each, client, endpoint, out))
    for sitting in each:
        sitting.close()
    return coverage


def file_name(model: str) -> str:
    """What a model that is served is called in files."""
    return re.sub(r"[^\w.-]+", "--", model)


def _client(endpoint: Endpoint) -> Any:
    try:
        openai = import_module("openai")
    except ImportError as error:
        raise ConfigError(
            f"evaluating an endpoint takes its client library, which is not installed: `{install_extra('evaluate')}`"
        ) from error
    key = os.environ.get(endpoint.key_variable, "") if endpoint.key_variable else "none"
    if not key:
        raise ConfigError(
            f"the environment variable '{endpoint.key_variable}' is not set: expected the API key of {endpoint.base_url} in it. For an "
            "endpoint that takes none, leave the variable's name empty."
        )
    return openai.AsyncOpenAI(base_url=endpoint.base_url, api_key=key, max_retries=RETRIES, timeout=SECONDS)


async def _answer_all(each: Sequence[Sitting], client: Any, endpoint: Endpoint, out: Path) -> None:
    """One benchmark after the other. Raises `EndpointError`."""
    async with client:
        for sitting in each:
            course = _Course(sitting)
            try:
                await _answer(course, client, endpoint)
            finally:
                note_refused(out, sitting.asked.benchmark.name, course.refused)
            if course.failed:
                raise EndpointError(
                    f"{endpoint.base_url} failed at {sitting.asked.benchmark.name}, {course.failed}. What it has answered is kept, "
                    f"{sitting.done} of {len(sitting.asked.prompts)} items: cure it and give the same command to go on."
                ) from course.cause


async def _answer(course: _Course, client: Any, endpoint: Endpoint) -> None:
    """Ask for what is missing, a few items at a time. After an error nothing more is asked, and what is under way is waited for."""
    items = iter(course.sitting.missing)
    await asyncio.gather(*(_answer_next(items, course, client, endpoint) for _ in range(endpoint.parallel)))


async def _answer_next(items: Iterator[str], course: _Course, client: Any, endpoint: Endpoint) -> None:
    """Ask for one of ``items`` after the other, which several of these take from. An answer is kept as soon as it has come."""
    from openai import BadRequestError, OpenAIError, UnprocessableEntityError

    for item in items:
        try:
            answer = await _ask(client, endpoint, course.sitting.asked, item)
        except (BadRequestError, UnprocessableEntityError) as error:
            course.refused[item] = f"{type(error).__name__}: {error!s:.300}"
            if course.sitting.done == 0 and len(course.refused) >= min(REFUSALS, len(course.sitting.missing)):
                _fail(course, f"which refused every item so far, '{item}' with {course.refused[item]}", error)
        except (OpenAIError, EndpointError) as error:
            _fail(course, f"item '{item}' ({type(error).__name__}: {error!s:.300})", error)
        else:
            course.sitting.add(answer)
        if course.failed:
            return


def _fail(course: _Course, why: str, cause: Exception) -> None:
    """The first failure is the one that is told."""
    if not course.failed:
        course.failed, course.cause = why, cause


async def _ask(client: Any, endpoint: Endpoint, asked: Asked, item: str) -> Completion:
    prompt, template = asked.prompts[item], asked.template
    stop = template.stop if template.kind != "chat" else ()
    chat = template.kind == "chat" or endpoint.route == "chat"
    how: dict[str, Any] = {"model": endpoint.model, "temperature": 0.0, "max_tokens": asked.max_tokens}
    how |= {"stop": list(stop[:MOST_STOPS])} if stop else {}
    try:
        if chat:
            reply = await client.chat.completions.create(messages=[{"role": "user", "content": prompt}], **how)
        else:
            reply = await client.completions.create(prompt=prompt, **how)
    except ValueError as error:  # a body that is no JSON, as of an answer that was cut off
        raise EndpointError(f"expected a completion as JSON, got something else ({error!s:.200})") from error
    found = reply_of(reply, chat)
    kept = cut(found.text, stop)
    reason = "stop" if kept != found.text else found.finish_reason
    return Completion(item, kept, prompt, reason, found.prompt_tokens, found.tokens, found.reasoning)
