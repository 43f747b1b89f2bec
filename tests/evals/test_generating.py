"""Greedy generation: all sources in one engine, taken up where it stopped, and cut where the templates say."""

from __future__ import annotations

import json
import shutil
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from experiments.tiny_base.tokenizer import build_tokenizer
from greedy import greedy_tokens
from small_sources import base_facts, running
from transformers import AutoModelForCausalLM

from populora.core.config import Config, LoraConfig, PopulationConfig
from populora.core.errors import AdapterError, ConfigError, RunDirectoryError
from populora.core.types import Generation
from populora.engine.model.loading import base_folder
from populora.engine.sampling.vllm import engine_settings
from populora.evals.answering import completed
from populora.evals.asking import Paper
from populora.evals.benchmarks import BENCHMARKS
from populora.evals.generating import GenerationPlan, generate, unfit
from populora.evals.generation_file import agree
from populora.evals.prompts import load_template
from populora.evals.records import Item
from populora.evals.serving import open_engine
from populora.evals.sources import find_sources
from populora.tasks.render import load_prompts

CRUX = ("cruxeval_input", "cruxeval_output")


@pytest.fixture
def out(tmp_path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


@pytest.fixture
def plan(make_adapter, sources_of, crux) -> GenerationPlan:
    """Two adapters of different ranks and targets, and two benchmarks."""
    one, two = make_adapter("one", 1), make_adapter("two", 2, rank=2, targets=("q_proj", "up_proj"))
    return GenerationPlan(sources_of(one, two, "tiny"), [Paper(BENCHMARKS[name], crux) for name in CRUX])


class Seen(dict):
    """The last that was said of each source at each benchmark."""

    def __call__(self, benchmark: str, source: str, done: int, items: int) -> None:
        self[benchmark, source] = (done, items)


def completions(out: Path, benchmark: str, source: str) -> list[dict]:
    return [json.loads(line) for line in (out / "generations" / benchmark / f"{source}.jsonl").read_text().splitlines()]


def contents(out: Path) -> dict[str, bytes]:
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}


def stopping_after(count: int):
    """An engine that a kill ends after so many completions."""

    @contextmanager
    def opened(config, served):
        with open_engine(config, served) as sampler:
            stream = sampler.stream

            def cut_short(*arguments):
                for number, answered in enumerate(stream(*arguments)):
                    if number == count:
                        raise KeyboardInterrupt
                    yield answered

            sampler.stream = cut_short
            yield sampler

    return opened


def never(config, served):
    pytest.fail("an engine was opened")


def test_every_source_answers_every_item_under_its_own_adapter(plan, out):
    seen = Seen()
    coverage = generate(plan, out, seen)
    assert seen == {(name, source): (3, 3) for name in CRUX for source in ("one", "two", "base")}
    assert [one.left_out for one in coverage.asked] == [{}, {}]
    answers = {source: completions(out, "cruxeval_output", source) for source in ("one", "two", "base")}
    assert [one["item_id"] for one in answers["one"]] == ["made_0", "made_1", "made_2"]
    assert all(one["prompt"] == coverage.asked[1].prompts[one["item_id"]] for one in answers["one"])
    texts = {source: [one["completion"] for one in given] for source, given in answers.items()}
    assert texts["one"] != texts["base"] != texts["two"] != texts["one"]


def test_sources_answer_together_as_they_do_alone(plan, out, tmp_path):
    generate(plan, out, Seen())
    for source in plan.sources.each:
        alone = tmp_path / f"only-{source.name}"
        alone.mkdir()
        generate(replace(plan, sources=replace(plan.sources, each=(source,))), alone, Seen())
        assert contents(alone / "generations") == {
            name: data for name, data in contents(out / "generations").items() if name.endswith(f"/{source.name}.jsonl")
        }


def test_greedy_tokens_are_those_of_transformers(chat_base, sources_of, coding, out):
    generate(GenerationPlan(sources_of(chat_base), [Paper(BENCHMARKS["mbpp_plus"], coding, max_tokens=20)]), out, Seen())
    tokenizer, model = build_tokenizer(), AutoModelForCausalLM.from_pretrained(chat_base)
    for one in completions(out, "mbpp_plus", "base"):
        assert one["prompt"].startswith("<|im_start|>user\nPlease provide") and one["prompt"].endswith("```python\n")
        ids = tokenizer(one["prompt"], return_tensors="pt")["input_ids"]
        made = greedy_tokens(model, ids, 20)
        text = tokenizer.decode(made, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert text.startswith(one["completion"]) and one["prompt_tokens"] == ids.shape[1]
        assert one["tokens"] == len(made) or one["finish_reason"] == "stop"


@pytest.mark.parametrize("count", [0, 1, 4])
def test_what_a_kill_leaves_is_taken_up_and_ends_with_the_same_bytes(plan, out, tmp_path, count):
    undisturbed = tmp_path / "undisturbed"
    undisturbed.mkdir()
    generate(plan, undisturbed, Seen())
    with pytest.raises(KeyboardInterrupt):
        generate(plan, out, Seen(), stopping_after(count))
    begun = list((out / "generations").rglob("*.jsonl"))
    assert sum(len(path.read_bytes().splitlines()) for path in begun) == count
    for path in begun:
        with path.open("ab") as file:
            file.write(b'{"item_id": "made_2", "compl')
    seen = Seen()
    generate(plan, out, seen)
    assert contents(out) == contents(undisturbed)
    generate(plan, out, seen, never)
    assert contents(out) == contents(undisturbed) and set(seen.values()) == {(3, 3)}


def test_more_items_sources_and_benchmarks_may_come_later(plan, out, tmp_path, crux):
    everything = tmp_path / "everything"
    everything.mkdir()
    generate(plan, everything, Seen())
    first = replace(plan, sources=replace(plan.sources, each=plan.sources.each[:1]), papers=[Paper(BENCHMARKS[CRUX[1]], crux[1:])])
    generate(first, out, Seen())
    generate(plan, out, Seen())
    assert contents(out / "generations") == contents(everything / "generations")


def test_items_that_do_not_fit_are_written_down(plan, out, crux):
    long = Item("long", crux[0].fields | {"code": "def f(x):\n    return " + "x + " * 300 + "x"})
    coverage = generate(replace(plan, papers=[Paper(BENCHMARKS["cruxeval_input"], [long, crux[0]])]), out, Seen())
    kept = json.loads((out / "generation.json").read_text())["benchmarks"]["cruxeval_input"]
    assert list(coverage.asked[0].left_out) == ["long"] == list(kept["left_out"])
    assert (kept["template"], kept["max_tokens"], kept["stop"]) == ("solve 1 (compact 1)", 24, ["</answer>"])
    assert [one["item_id"] for one in completions(out, "cruxeval_input", "one")] == ["made_0"]


def test_completions_are_not_mixed_with_those_of_other_settings(plan, out, crux, sources_of):
    generate(plan, out, Seen())
    before = contents(out)
    changed = [Item("made_0", crux[0].fields | {"input": "4"}), *crux[1:]]
    with pytest.raises(ConfigError, match=r"one.jsonl' has a completion of item 'made_0' to another prompt .*or another folder"):
        generate(replace(plan, papers=[Paper(BENCHMARKS["cruxeval_output"], changed)]), out, Seen(), never)
    with pytest.raises(ConfigError, match=r"begun with benchmarks.cruxeval_output.max_tokens 24, now it is 30"):
        generate(replace(plan, papers=[Paper(BENCHMARKS["cruxeval_output"], crux, max_tokens=30)]), out, Seen(), never)
    with pytest.raises(ConfigError, match=r"begun with base.path 'tiny', now it is 'other'"):
        agree(out, {"base": {"path": "other"}})
    with pytest.raises(ConfigError, match="begun with merged False, now it is True"):
        generate(replace(plan, merge=True), out, Seen(), never)
    assert contents(out) == before


def test_an_evaluation_is_not_gone_on_with_on_other_weights_of_the_same_name(chat_base, sources_of, coding, out, tmp_path):
    base = tmp_path / "base"
    shutil.copytree(chat_base, base)
    plan = GenerationPlan(sources_of(base), [Paper(BENCHMARKS["mbpp_plus"], coding, max_tokens=8, only=1)])
    generate(plan, out, Seen())
    first, whole = contents(out), replace(plan, papers=[Paper(BENCHMARKS["mbpp_plus"], coding, max_tokens=8)])
    model = AutoModelForCausalLM.from_pretrained(base)
    with torch.no_grad():
        model.lm_head.weight[5, 5] += 1.0
    model.save_pretrained(base)
    with pytest.raises(ConfigError, match=r"begun with base.sha256 '\w{64}', now it is '\w{64}'"):
        generate(whole, out, Seen(), never)
    assert contents(out) == first
    generate(plan, out, Seen(), never)  # nothing is missing: nothing is loaded
    for file in chat_base.glob("*.safetensors"):
        shutil.copy(file, base)
    generate(whole, out, Seen())
    assert len(completions(out, "mbpp_plus", "base")) == 2


def test_the_base_of_a_run_has_the_weights_that_it_was_trained_on_wherever_it_is(tmp_path, crux, out, chat_base):
    config = Config(steps=2, checkpoint_every=2, lora=LoraConfig(4, 8.0), population=PopulationConfig(1, 1))
    with running(tmp_path / "run", config, 2) as run:
        plan = GenerationPlan(find_sources([str(run)], "base,S0", str(chat_base)), [Paper(BENCHMARKS["cruxeval_output"], crux, "", 8)])
        with pytest.raises(ConfigError, match=rf"'{chat_base}' is not the base that '{run}' was trained on"):
            generate(plan, out, Seen(), never)
        assert contents(out) == {}
        shutil.copytree(base_folder(config.base), tmp_path / "elsewhere")
        generate(replace(plan, sources=find_sources([str(run)], "base,S0", str(tmp_path / "elsewhere"))), out, Seen())
    kept = json.loads((out / "generation.json").read_text())
    assert kept["base"]["sha256"] == base_facts()["base_sha256"] and kept["sources"]["S0"]["step"] == 2


def test_a_benchmark_of_which_no_item_can_be_asked_is_told_apart(plan, out, crux):
    long = Item("long", crux[0].fields | {"code": "def f(x):\n    return " + "x + " * 300 + "x"})
    none, some = Paper(BENCHMARKS[CRUX[0]], [long]), Paper(BENCHMARKS[CRUX[1]], crux)
    coverage = generate(replace(plan, papers=[none, some]), out, Seen())
    assert list(coverage.unasked) == ["cruxeval_input"] and coverage.unasked["cruxeval_input"].startswith("too_long: ")
    assert not (out / "generations" / "cruxeval_input").exists() and completions(out, "cruxeval_output", "one")
    before, said = contents(out), []
    generate(replace(plan, papers=[none]), out, Seen(), never, said.append)
    assert contents(out) == before and list(said[0].unasked) == ["cruxeval_input"]


def test_a_damaged_line_and_a_second_completion_are_named(plan, out):
    generate(plan, out, Seen())
    path = out / "generations" / "cruxeval_output" / "two.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], b"{broken\n", lines[2]]))
    with pytest.raises(RunDirectoryError, match=r"two.jsonl', line 2: expected a completion, got b'\{broken'"):
        generate(plan, out, Seen(), never)
    path.write_bytes(b"".join([*lines, lines[0]]))
    with pytest.raises(RunDirectoryError, match=r"two.jsonl', line 4: a second completion of item 'made_0'"):
        generate(plan, out, Seen(), never)


def test_an_adapter_of_another_base_is_refused_before_anything_is_written(out, make_adapter, sources_of, chat_base, crux):
    other = make_adapter("other", 1, str(chat_base))
    plan = GenerationPlan(sources_of(other, base="tiny"), [Paper(BENCHMARKS["cruxeval_output"], crux)])
    with pytest.raises(AdapterError, match=r"'.*other' is an adapter for another base"):
        generate(plan, out, Seen(), never)
    assert contents(out) == {}


def test_sources_that_cannot_be_evaluated_are_told_apart_from_the_rest(make_adapter, sources_of, chat_base):
    good, other, damaged = (
        make_adapter(name, 1, base) for name, base in (("good", "tiny"), ("other", str(chat_base)), ("damaged", "tiny"))
    )
    (damaged / "adapter_model.safetensors").write_bytes(b"half of it")
    for merge in (False, True):
        found = unfit(sources_of(good, other, damaged, base="tiny"), merge)
        assert list(found) == ["other", "damaged"]
        assert "is an adapter for another base" in found["other"] and "damaged or cut off" in found["damaged"]


def test_an_engine_elsewhere_is_given_room_for_all_adapters_and_the_longest_pair(plan, out):
    given = []

    @contextmanager
    def noted(config, served):
        given.append(engine_settings(config, config.population.members, config.selfplay.max_prompt_tokens + 24))
        with open_engine(config, served) as sampler:
            yield sampler

    coverage = generate(plan, out, Seen(), noted)
    assert len(given) == 1 and (given[0]["max_lora_rank"], given[0]["max_loras"]) == (8, 3)  # two and the bare base; 8 holds rank 4
    assert given[0]["max_model_len"] == max(one.longest for one in coverage.asked) + 24


def made(text: str, stopped: bool = False) -> Generation:
    tokens = tuple(build_tokenizer()(text)["input_ids"])
    return Generation(text.replace("<eos>", "").replace("<pad>", ""), (5, 6), tokens, (0.0,) * len(tokens), 0.0, stopped)


def finished(text: str, stop: tuple[str, ...], kind: str = "raw", stopped: bool = False):
    template = replace(load_template("azr_math", BENCHMARKS["gsm8k"], load_prompts("compact")), stop=stop, kind=kind)
    done = completed("one", "prompt", made(text, stopped), template, build_tokenizer())
    return done.completion, done.finish_reason, done.tokens


def test_a_response_is_cut_at_whichever_stop_text_comes_first():
    assert finished("return x\nprint(x)\n```\n", ("\n```\n", "\nprint("), stopped=True)[:2] == ("return x", "stop")
    assert finished("x = 1\nprint(x)", ("\n```\n", "\nprint(")) == ("x = 1", "stop", len(made("x = 1\nprint(").tokens))
    assert finished("x = 1", ("\n```\n", "\nprint(")) == ("x = 1", "length", len(made("x = 1").tokens))
    assert finished("x = 1", ("\n```\n",), stopped=True)[1] == "stop"
    assert finished("", ("\n```\n",)) == ("", "length", 0)


def test_a_stop_text_that_is_a_control_token_is_found_though_decoding_leaves_it_out():
    assert finished("ab<pad>cd", ("</s>", "<pad>")) == ("ab", "stop", 3)
    assert finished("ab<pad>", ("<pad>",)) == ("ab", "stop", 3)
    assert finished("a\nprint(b<pad>c", ("\nprint(", "<pad>"))[:2] == ("a", "stop")
    assert finished("ab<pad>c\nprint(d", ("\nprint(", "<pad>"))[:2] == ("ab", "stop")


def test_a_solvers_answer_keeps_its_closing_tag():
    text = "x</think><answer>```output\n1\n```</answer>"
    assert finished(text, ("</answer>",), kind="solve", stopped=True) == (text, "stop", len(made(text).tokens))
