"""A served model is asked through its client library; what it answered before an error is kept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from served_model import served

from populora.errors import ConfigError, EndpointError
from populora.evals import endpoint as module
from populora.evals.asking import Paper
from populora.evals.benchmarks import BENCHMARKS
from populora.evals.endpoint import Endpoint, generate_from
from populora.evals.records import Item

pytest.importorskip("openai", reason="the client library of endpoints")


@pytest.fixture
def server():
    with served() as made:
        yield made


@pytest.fixture
def endpoint(server, monkeypatch) -> Endpoint:
    monkeypatch.setenv("MADE_KEY", "secret")
    return Endpoint(server.url, "made/model 1", "MADE_KEY", parallel=3, retries=0, timeout_seconds=20)


@pytest.fixture
def out(tmp_path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def maths(count: int) -> Paper:
    return Paper(BENCHMARKS["gsm8k"], [Item(str(number), {"question": f"what is q{number}?"}) for number in range(count)], max_tokens=11)


def silent(*_: object) -> None:
    pass


def completions(out: Path, benchmark: str) -> list[dict]:
    file = out / "generations" / benchmark / "made--model--1.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_raw_prompts_go_to_the_completions_route(server, endpoint, out):
    coverage = generate_from(endpoint, [maths(5)], out, silent)
    assert [one["item_id"] for one in completions(out, "gsm8k")] == ["0", "1", "2", "3", "4"]
    for path, sent, key in server.asked:
        assert path == "/v1/completions" and key == "Bearer secret"
        assert (sent["model"], sent["temperature"], sent["max_tokens"]) == ("made/model 1", 0.0, 11)
        assert sent["stop"] == ["</s>", "<|im_end|>", "<|endoftext|>"] and sent["prompt"].endswith("?\nAssistant:")
    first = completions(out, "gsm8k")[0]
    assert (first["finish_reason"], first["prompt_tokens"], first["tokens"]) == ("length", 7, 3)
    assert first["completion"] == first["prompt"].upper() == coverage.asked[0].prompts["0"].upper()
    assert "secret" not in (out / "generation.json").read_text()


def test_a_template_with_turns_goes_to_the_chat_route_without_the_assistants_turn(server, endpoint, out, coding):
    server.said = "```python\nx = 1\n```\nprint(1)"
    generate_from(endpoint, [Paper(BENCHMARKS["humaneval_plus"], coding)], out, silent)
    path, sent, _ = server.asked[0]
    assert path == "/v1/chat/completions" and "stop" not in sent and sent["max_tokens"] == 768
    assert len(sent["messages"]) == 1 and sent["messages"][0]["content"].startswith("Please provide a self-contained Python script")
    assert completions(out, "humaneval_plus")[0]["completion"] == server.said


def test_a_response_is_cut_at_stop_texts_beyond_those_that_fit_into_a_request(server, endpoint, out, coding):
    server.said = "x = 1\ndef main():\n    pass"
    generate_from(endpoint, [Paper(BENCHMARKS["humaneval_plus"], coding, template="plain")], out, silent)
    assert len(server.asked[0][1]["stop"]) == 4
    assert (completions(out, "humaneval_plus")[0]["completion"], completions(out, "humaneval_plus")[0]["finish_reason"]) == (
        "x = 1",
        "stop",
    )


def test_an_endpoint_without_a_completions_route_is_asked_by_chat(server, endpoint, out):
    generate_from(replace(endpoint, route="chat"), [maths(1)], out, silent)
    assert server.asked[0][0] == "/v1/chat/completions" and len(completions(out, "gsm8k")) == 1


@pytest.mark.parametrize(("status", "name"), [(401, "AuthenticationError"), (500, "InternalServerError")])
def test_after_an_error_nothing_is_lost_and_the_same_call_goes_on(server, endpoint, out, status, name):
    server.failing = {"q7?": status}
    with pytest.raises(EndpointError, match=rf"{server.url} failed at gsm8k, item '7' \({name}: .*made to fail.* is kept, \d+ of 40 items"):
        generate_from(endpoint, [maths(40)], out, silent)
    answered = len([sent for _, sent, _ in server.asked if "q7?" not in sent["prompt"]])
    assert len(completions(out, "gsm8k")) == answered < 39
    server.failing, server.asked = {}, []
    generate_from(endpoint, [maths(40)], out, silent)
    assert [one["item_id"] for one in completions(out, "gsm8k")] == [str(number) for number in range(40)]
    assert len(server.asked) == 40 - answered


def test_the_library_tries_again(server, endpoint, out):
    server.failing = {"q0?": 500}
    with pytest.raises(EndpointError):
        generate_from(replace(endpoint, retries=1), [maths(1)], out, silent)
    assert len(server.asked) == 2


def test_an_address_that_answers_something_else_or_nothing_is_an_error(server, endpoint, out):
    server.body = b"<html>welcome</html>"
    with pytest.raises(EndpointError, match="expected a completion with a choice, got '<html>welcome"):
        generate_from(endpoint, [maths(3)], out, silent)
    nobody = replace(endpoint, base_url="http://127.0.0.1:9/v1")
    with pytest.raises(EndpointError, match=r"item '0' \(APIConnectionError"):
        generate_from(nobody, [maths(1)], out.parent, silent)


def test_a_missing_key_or_library_is_named(endpoint, out, monkeypatch):
    monkeypatch.delenv("MADE_KEY")
    with pytest.raises(ConfigError, match="environment variable 'MADE_KEY' is not set"):
        generate_from(endpoint, [maths(1)], out, silent)

    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr(module, "import_module", absent)
    with pytest.raises(ConfigError, match="`pip install openai`"):
        generate_from(endpoint, [maths(1)], out, silent)
    assert not any(out.iterdir())


def test_an_endpoint_that_takes_no_key_is_asked_without_a_variable(server, endpoint, out):
    generate_from(replace(endpoint, key_variable=""), [maths(1)], out, silent)
    assert len(completions(out, "gsm8k")) == 1
