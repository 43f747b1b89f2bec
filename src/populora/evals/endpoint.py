"""Any endpoint that speaks OpenAI's protocol answers benchmarks, through the ``openai`` client library: which retries, here nothing does.

Raw prompts go to the completions route. A template with turns goes to the chat route as the user's turn alone, since few endpoints let a
client begin the assistant's: its response has the fences that the begun turn would have opened, and no stop text cuts it. What a served
model answers at temperature 0 may still differ from time to time.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from populora.config import TasksConfig
from populora.errors import ConfigError, EndpointError
from populora.evals.asking import Asked, Paper, ask_elsewhere
from populora.evals.completions import Progress, Sitting, cut, sittings
from populora.evals.generating import Begun, Coverage
from populora.evals.pinning import record
from populora.evals.records import Completion
from populora.evals.sources import Source
from populora.tasks.render import load_prompts

MOST_STOPS = 4
"""Stop texts that the protocol takes in one request; a response is cut at the others when it is there."""


@dataclass(frozen=True)
class Endpoint:
    """Where a model is served, and how it is asked."""

    base_url: str
    model: str
    key_variable: str = "OPENAI_API_KEY"
    """Environment variable with the API key. Empty: the endpoint takes none."""
    parallel: int = 4
    """Requests under way at a time."""
    retries: int = 5
    timeout_seconds: float = 600.0
    max_tokens: int = 8096
    """Longest response where the benchmark has no limit of its own."""
    route: Literal["template", "chat"] = "template"
    """``chat`` also sends raw prompts as a user's turn, to endpoints that have no completions route."""
    prompts: Literal["compact", "azr"] = "azr"
    """Prompt set of the template ``solve``."""


def generate_from(
    endpoint: Endpoint, papers: Sequence[Paper], out: Path, progress: Progress, begun: Begun = lambda coverage: None
) -> Coverage:
    """As `populora.evals.generating.generate`, by an endpoint.

    Raises `ConfigError` without the client library or the key, and `EndpointError` when the endpoint refuses or fails: what was answered
    until then is kept.
    """
    client = _client(endpoint)
    prompts = load_prompts(endpoint.prompts, TasksConfig())
    asked = tuple(ask_elsewhere(paper, endpoint.max_tokens, prompts) for paper in papers)
    source = Source(file_name(endpoint.model), "endpoint")
    served = {"role": source.role, "url": endpoint.base_url, "model": endpoint.model, "route": endpoint.route}
    benchmarks = {one.benchmark.name: one.described() for one in asked}
    record(out, {"base": {"path": endpoint.model}, "merged": False, "sources": {source.name: served}, "benchmarks": benchmarks})
    each = sittings(asked, [source.name], out, progress)
    coverage = Coverage((source,), asked)
    begun(coverage)
    for sitting in each:
        _answer(sitting, client, endpoint)
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
        raise ConfigError("evaluating an endpoint takes its client library, which is not installed: `pip install openai`") from error
    key = os.environ.get(endpoint.key_variable, "") if endpoint.key_variable else "none"
    if not key:
        raise ConfigError(
            f"the environment variable '{endpoint.key_variable}' is not set: expected the API key of {endpoint.base_url} in it. For an "
            "endpoint that takes none, leave the variable's name empty."
        )
    return openai.OpenAI(base_url=endpoint.base_url, api_key=key, max_retries=endpoint.retries, timeout=endpoint.timeout_seconds)


def _answer(sitting: Sitting, client: Any, endpoint: Endpoint) -> None:
    """Ask for what is missing, a few items at a time. After an error nothing more is asked, and what is under way is waited for."""
    from openai import OpenAIError

    pool, item = ThreadPoolExecutor(endpoint.parallel), ""
    waiting = {pool.submit(_ask, client, endpoint, sitting.asked, item): item for item in sitting.missing}
    try:
        for future in as_completed(waiting):
            item = waiting.pop(future)
            sitting.add(future.result())
    except (OpenAIError, EndpointError) as error:
        pool.shutdown(cancel_futures=True)
        for future in waiting:
            if not future.cancelled() and not future.exception():
                sitting.add(future.result())
        raise EndpointError(
            f"{endpoint.base_url} failed at {sitting.asked.benchmark.name}, item '{item}' ({type(error).__name__}: {error!s:.300}). What "
            f"it has answered is kept, {sitting.done} of {len(sitting.asked.prompts)} items: cure it and give the same command to go on."
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _ask(client: Any, endpoint: Endpoint, asked: Asked, item: str) -> Completion:
    prompt, template = asked.prompts[item], asked.template
    chat = template.kind == "chat"
    stop = template.stop if not chat else ()
    how: dict[str, Any] = {"model": endpoint.model, "temperature": 0.0, "max_tokens": asked.max_tokens}
    how |= {"stop": list(stop[:MOST_STOPS])} if stop else {}
    if chat or endpoint.route == "chat":
        reply = client.chat.completions.create(messages=[{"role": "user", "content": prompt}], **how)
    else:
        reply = client.completions.create(prompt=prompt, **how)
    if not getattr(reply, "choices", None):
        raise EndpointError(
            f"expected a completion with a choice, got {reply!r:.200}; is the address the API's, such as http://host:8000/v1?"
        )
    choice, counts = reply.choices[0], reply.usage
    text = (choice.message.content if hasattr(choice, "message") else choice.text) or ""
    kept = cut(text, stop)
    reason = "stop" if kept != text else choice.finish_reason or ""
    return Completion(item, kept, prompt, reason, counts.prompt_tokens if counts else 0, counts.completion_tokens if counts else 0)
