"""Generation by an OpenAI-compatible endpoint, through the ``openai`` client library, which retries by itself.

Raw prompts go to the completions route. A chat template goes to the chat route as the user's turn alone, since few endpoints let a client
begin the assistant's: the response then contains its own opening fence, and no stop text cuts it. Answers at temperature 0
may still differ between calls. An item that the endpoint refuses (400 or 422, such as a prompt that is too long) has no completion.
"""

import asyncio
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from populora.core.config import SelfplayConfig, TasksConfig
from populora.core.errors import ConfigError, EndpointError
from populora.core.invocation import install_extra
from populora.evals.completions import CompletionLog, Progress, cut, open_completion_logs
from populora.evals.eval_records import Completion, EvalModel
from populora.evals.folder import update_evaluation
from populora.evals.prompts import EvalPrompts, EvalTask, render_prompts
from populora.tasks.render import load_prompts

MAX_STOPS = 4
"""Stop texts that the protocol takes; a response is cut at the others afterwards."""
RETRIES, SECONDS = 5, 600.0
"""Retries of the client library, and its timeout for each request."""
CONTEXT = 1 << 30
"""Tokens of a served model's context, which is unknown: the endpoint refuses what does not fit."""


@dataclass(frozen=True)
class Endpoint:
    """A served model and how to reach it, without a ``key_variable`` if it takes no API key; ``parallel`` requests at once."""

    base_url: str
    model: str
    key_variable: str = "OPENAI_API_KEY"
    parallel: int = 4
    chat: bool = False
    """Send raw prompts as a user's turn, too, for endpoints without a completions route."""

    @property
    def file_name(self) -> str:
        """The name of the model in files."""
        return re.sub(r"[^\w.-]+", "--", self.model)


@dataclass(frozen=True)
class ApiPlan:
    """An endpoint and the prompts that it will complete."""

    endpoint: Endpoint
    prompts: tuple[EvalPrompts, ...]

    def settings(self) -> dict[str, Any]:
        """Collect the settings that completions depend on."""
        endpoint = self.endpoint
        model = {"role": "base", "url": endpoint.base_url, "model": endpoint.model, "route": "chat" if endpoint.chat else "template"}
        benchmarks = {prompts.benchmark.name: prompts.settings() for prompts in self.prompts}
        return {"base": {"path": endpoint.model}, "merged": False, "models": {endpoint.file_name: model}, "benchmarks": benchmarks}


def make_api_plan(endpoint: Endpoint, tasks: Sequence[EvalTask]) -> ApiPlan:
    """Render the prompts, in the words of AZR where a task has none. Raises `ConfigError`."""
    prompts = load_prompts("azr", TasksConfig())
    return ApiPlan(endpoint, tuple(render_prompts(task, None, CONTEXT, SelfplayConfig(), prompts) for task in tasks))


def generate_by_api(plan: ApiPlan, out: Path, progress: Progress) -> dict[str, dict[str, str]]:
    """Generate the completions that ``out`` lacks; returns the errors of refused items. Raises `ConfigError`, `EndpointError`."""
    client = _open_client(plan.endpoint)
    update_evaluation(out, plan.settings())
    logs = open_completion_logs(plan.prompts, [EvalModel(plan.endpoint.file_name, "base")], out, progress)
    refused = asyncio.run(_fill_logs(logs, client, plan.endpoint))
    for log in logs:
        log.close()
    return refused


def _open_client(endpoint: Endpoint) -> Any:
    if not find_spec("openai"):
        raise ConfigError(f"evaluating an endpoint takes its client library, which is not installed: `{install_extra('evaluate')}`")
    from openai import AsyncOpenAI

    key = os.environ.get(endpoint.key_variable, "") if endpoint.key_variable else "none"
    if not key:
        fault = f"environment variable '{endpoint.key_variable}' is not set"
        raise ConfigError(f'{fault}: expected the API key of {endpoint.base_url} in it (`--key-variable ""` if it takes none)')
    return AsyncOpenAI(base_url=endpoint.base_url, api_key=key, max_retries=RETRIES, timeout=SECONDS)


async def _fill_logs(logs: Sequence[CompletionLog], client: Any, endpoint: Endpoint) -> dict[str, dict[str, str]]:
    """Request one benchmark after the other. After an error no item is begun, and requests under way are completed."""
    refused: dict[str, dict[str, str]] = {}
    async with client:
        for log in logs:
            items, errors = iter(log.missing), dict[str, str]()
            workers = [_request_items(items, log, errors, client, endpoint) for _ in range(endpoint.parallel)]
            for error in await asyncio.gather(*workers, return_exceptions=True):
                if error is not None:
                    raise error
            refused |= {log.prompts.benchmark.name: errors} if errors else {}
    return refused


async def _request_items(items: Iterator[str], log: CompletionLog, refused: dict[str, str], client: Any, endpoint: Endpoint) -> None:
    """Request items from the iterator, which the workers share. Raises `EndpointError` or `RunDirectoryError`, and ends the iterator."""
    from openai import BadRequestError, OpenAIError, UnprocessableEntityError

    try:
        for item in items:
            try:
                log.add(await _request(client, endpoint, log.prompts, item))
            except (BadRequestError, UnprocessableEntityError) as error:
                refused[item] = f"{type(error).__name__}: {error!s:.300}"
            except (OpenAIError, EndpointError) as error:
                raise EndpointError(
                    f"{endpoint.base_url} failed at {log.prompts.benchmark.name}, item '{item}' ({type(error).__name__}: {error!s:.300}). "
                    "Completed items are kept: repair it, and give the same command to resume."
                ) from error
    finally:
        for _ in items:  # after an error the other workers begin none
            pass


async def _request(client: Any, endpoint: Endpoint, prompts: EvalPrompts, item: str) -> Completion:
    """Request a completion and cut it at the stop texts. A null ``content`` is an empty text. Raises `EndpointError`."""
    prompt, template = prompts.prompts[item], prompts.template
    stop = template.stop if template.kind != "chat" else ()
    chat = template.kind == "chat" or endpoint.chat
    options: dict[str, Any] = {"model": endpoint.model, "temperature": 0.0, "max_tokens": prompts.max_tokens}
    options |= {"stop": list(stop[:MAX_STOPS])} if stop else {}
    reply: Any = None
    try:  # the client library does not check the form of a reply
        if chat:
            reply = await client.chat.completions.create(messages=[{"role": "user", "content": prompt}], **options)
        else:
            reply = await client.completions.create(prompt=prompt, **options)
        choice = reply.choices[0]
        message = choice.message if chat else choice
        text = (message.content or "") if chat else message.text
        kept = cut("" + text, stop)  # an error unless it is a text
    except (ValueError, AttributeError, IndexError, KeyError, TypeError) as error:
        raise EndpointError(f"expected a completion, got {reply!r:.200}: is the address the API's, such as http://x:8000/v1?") from error
    reasoning = getattr(message, "reasoning_content", None) or getattr(message, "reasoning", None) or ""
    reason = "stop" if kept != text else getattr(choice, "finish_reason", None) or ""
    usage = getattr(reply, "usage", None)
    prompt_tokens, tokens = (getattr(usage, name, None) or 0 for name in ("prompt_tokens", "completion_tokens"))
    return Completion(item, kept, prompt, reason, prompt_tokens, tokens, reasoning)
