"""A served model is asked through its client library; what it answered before an error is kept."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from full_disk import file_limit
from served_model import served
from small_sources import completions

from populora.core.errors import ConfigError, EndpointError, RunDirectoryError
from populora.evals import openai_api as module
from populora.evals.benchmarks import BENCHMARKS
from populora.evals.completions import CompletionLog
from populora.evals.eval_records import Item
from populora.evals.openai_api import Endpoint, generate_by_api, make_api_plan
from populora.evals.prompts import EvalTask

pytest.importorskip("openai", reason="the client library of endpoints")
MODEL = "made--model--1"


@pytest.fixture
def server():
    with served() as made:
        yield made


@pytest.fixture
def endpoint(server, monkeypatch) -> Endpoint:
    monkeypatch.setenv("MADE_KEY", "secret")
    monkeypatch.setattr(module, "RETRIES", 0)
    monkeypatch.setattr(module, "SECONDS", 20.0)
    return Endpoint(server.url, "made/model 1", "MADE_KEY", parallel=3)


def maths(count: int) -> EvalTask:
    return EvalTask(
        BENCHMARKS["gsm8k"], [Item(str(number), {"question": f"what is q{number}?"}) for number in range(40)], max_tokens=11, limit=count
    )


def generate(endpoint: Endpoint, task: EvalTask, out: Path) -> dict[str, dict[str, str]]:
    return generate_by_api(make_api_plan(endpoint, [task]), out, lambda *_: None)


def test_raw_prompts_go_to_the_completions_route(server, endpoint, out):
    generate(endpoint, maths(5), out)
    assert [line["item_id"] for line in completions(out, "gsm8k", MODEL)] == ["0", "1", "2", "3", "4"]
    for path, sent, key in server.requests:
        assert path == "/v1/completions" and key == "Bearer secret"
        assert (sent["model"], sent["temperature"], sent["max_tokens"]) == ("made/model 1", 0.0, 11)
        assert sent["stop"] == ["</s>", "<|im_end|>", "<|endoftext|>"] and sent["prompt"].endswith("?\nAssistant:")
    first = completions(out, "gsm8k", MODEL)[0]
    assert (first["finish_reason"], first["prompt_tokens"], first["tokens"]) == ("length", 7, 3)
    assert first["completion"] == first["prompt"].upper()
    assert "secret" not in (out / "evaluation.json").read_text()


def test_a_template_with_turns_goes_to_the_chat_route_without_the_assistants_turn(server, endpoint, out, coding):
    server.reply = "```python\nx = 1\n```\nprint(1)"
    generate(endpoint, EvalTask(BENCHMARKS["humaneval_plus"], coding), out)
    path, sent, _ = server.requests[0]
    assert path == "/v1/chat/completions" and "stop" not in sent and sent["max_tokens"] == 768
    assert len(sent["messages"]) == 1 and sent["messages"][0]["content"].startswith("Please provide a self-contained Python script")
    assert completions(out, "humaneval_plus", MODEL)[0]["completion"] == server.reply


def test_a_response_is_cut_at_stop_texts_beyond_those_that_fit_into_a_request(server, endpoint, out, coding):
    server.reply = "x = 1\ndef main():\n    pass"
    generate(endpoint, EvalTask(BENCHMARKS["humaneval_plus"], coding, template="plain"), out)
    assert len(server.requests[0][1]["stop"]) == 4
    first = completions(out, "humaneval_plus", MODEL)[0]
    assert (first["completion"], first["finish_reason"]) == ("x = 1", "stop")


@pytest.mark.parametrize(("status", "name"), [(401, "AuthenticationError"), (500, "InternalServerError")])
def test_after_an_error_nothing_is_lost_and_the_same_call_goes_on(server, endpoint, out, status, name):
    server.failing = {"q7?": status}
    with pytest.raises(EndpointError, match=rf"{server.url} failed at gsm8k, item '7' \({name}: .*made to fail"):
        generate(endpoint, maths(40), out)
    answered = len([sent for _, sent, _ in server.requests if "q7?" not in sent["prompt"]])
    assert len(completions(out, "gsm8k", MODEL)) == answered < 39
    server.failing, server.requests = {}, []
    generate(endpoint, maths(40), out)
    assert [line["item_id"] for line in completions(out, "gsm8k", MODEL)] == [str(number) for number in range(40)]
    assert len(server.requests) == 40 - answered


def test_after_a_full_disk_no_item_is_begun_and_no_line_is_damaged(server, endpoint, out, monkeypatch):
    real, calls = CompletionLog.add, []

    def add(self, completion):
        calls.append(completion)
        with file_limit(self.file.stat().st_size + 20) if len(calls) == 5 else nullcontext():
            real(self, completion)

    monkeypatch.setattr(CompletionLog, "add", add)
    with pytest.raises(RunDirectoryError, match="free some space"):
        generate(endpoint, maths(40), out)
    assert len(calls) - 1 == len(completions(out, "gsm8k", MODEL)) and len(server.requests) < 5 + endpoint.parallel
    generate(endpoint, maths(40), out)
    assert len(completions(out, "gsm8k", MODEL)) == 40


@pytest.mark.parametrize("status", [400, 422])
def test_a_refused_item_is_reported_and_requested_again(server, endpoint, out, status):
    server.failing = {"q2?": status, "q7?": status}
    refused = generate(endpoint, maths(12), out)
    assert {line["item_id"] for line in completions(out, "gsm8k", MODEL)} == {str(number) for number in range(12)} - {"2", "7"}
    assert set(refused["gsm8k"]) == {"2", "7"} and "made to fail" in refused["gsm8k"]["2"]
    server.failing, server.requests = {"q7?": status}, []
    assert list(generate(endpoint, maths(12), out)["gsm8k"]) == ["7"] and len(server.requests) == 2
    server.failing = {}
    assert generate(endpoint, maths(12), out) == {} and len(completions(out, "gsm8k", MODEL)) == 12


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize(
    ("choice", "body"),
    [
        ({"finish_reason": "stop"}, None),  # no message
        ({"message": {"role": "assistant", "content": 5}, "text": ["x"]}, None),
        ({}, b'{"choices": [{"index": 0, "mess'),  # cut off
        ({}, b'{"choices": [], "usage": 7}'),
        ({}, b"null"),
    ],
)
def test_an_unexpected_answer_is_an_error_of_the_endpoint_and_loses_no_others(server, endpoint, out, chat, choice, body):
    asking = replace(endpoint, chat=True) if chat else endpoint
    generate(asking, maths(3), out)
    server.choice, server.body = choice, body
    with pytest.raises(EndpointError, match=r"failed at gsm8k, item .* are kept: repair it"):
        generate(asking, maths(9), out)
    server.choice, server.body = {}, None
    generate(asking, maths(9), out)
    assert len(completions(out, "gsm8k", MODEL)) == 9


def test_reasoning_is_kept_apart_from_the_answer_of_the_chat_route(server, endpoint, out):
    name = "reasoning_content"
    server.choice = {"message": {"role": "assistant", "content": None, name: "so 5, or"}}
    generate(replace(endpoint, chat=True), maths(1), out)
    server.choice = {"message": {"role": "assistant", "content": "5", name: "so 5"}, "finish_reason": "stop"}
    generate(replace(endpoint, chat=True), maths(2), out)
    assert [(line["completion"], line["reasoning"]) for line in completions(out, "gsm8k", MODEL)] == [("", "so 5, or"), ("5", "so 5")]
    assert {path for path, _, _ in server.requests} == {"/v1/chat/completions"}


def test_a_missing_key_or_library_is_named(endpoint, out, monkeypatch):
    monkeypatch.delenv("MADE_KEY")
    with pytest.raises(ConfigError, match="environment variable 'MADE_KEY' is not set"):
        generate(endpoint, maths(1), out)
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"-m pip install .*'openai>=2'"):
        generate(endpoint, maths(1), out)
    assert not any(out.iterdir())
