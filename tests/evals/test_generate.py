"""Greedy generation: all models in one engine, resumed where it stopped, and cut where the templates say."""

from dataclasses import replace

import pytest
from experiments.tiny_base.tokenizer import build_tokenizer
from greedy import greedy_tokens
from small_sources import completions
from transformers import AutoModelForCausalLM

from populora.core.errors import AdapterError
from populora.core.types import Generation
from populora.evals.benchmarks import BENCHMARKS
from populora.evals.generate import EvalPlan, generate, make_eval_plan, to_completion
from populora.evals.models import EvalModels
from populora.evals.prompts import EvalTask, load_template
from populora.tasks.render import load_prompts

CRUX = ("cruxeval_input", "cruxeval_output")


@pytest.fixture
def models(make_adapter, models_of) -> EvalModels:
    """Two adapters of different ranks and targets, and the base."""
    return models_of(make_adapter("one", 1), make_adapter("two", 2, rank=2, targets=("q_proj", "up_proj")), "tiny")


@pytest.fixture
def plan(models, crux) -> EvalPlan:
    return make_eval_plan(models, [EvalTask(BENCHMARKS[name], crux) for name in CRUX])


class Seen(dict):
    """The last progress of each model on each benchmark."""

    def __call__(self, benchmark: str, source: str, done: int, items: int) -> None:
        self[benchmark, source] = (done, items)


def test_every_model_answers_every_item_under_its_own_adapter_as_it_does_alone(plan, out, tmp_path):
    seen = Seen()
    generate(plan, out, seen)
    assert seen == {(name, source): (3, 3) for name in CRUX for source in ("one", "two", "base")}
    answers = {source: completions(out, "cruxeval_output", source) for source in ("one", "two", "base")}
    assert [line["item_id"] for line in answers["one"]] == ["made_0", "made_1", "made_2"]
    assert all(line["prompt"] == plan.prompts[1].prompts[line["item_id"]] for line in answers["one"])
    texts = {source: [line["completion"] for line in lines] for source, lines in answers.items()}
    assert texts["one"] != texts["base"] != texts["two"] != texts["one"]
    (tmp_path / "alone").mkdir()
    generate(replace(plan, models=replace(plan.models, models=plan.models.models[1:2])), tmp_path / "alone", Seen())
    assert completions(tmp_path / "alone", "cruxeval_output", "two") == answers["two"]


def test_greedy_tokens_are_those_of_transformers(chat_base, models_of, coding, out):
    generate(make_eval_plan(models_of(chat_base), [EvalTask(BENCHMARKS["mbpp_plus"], coding, max_tokens=20)]), out, Seen())
    tokenizer, model = build_tokenizer(), AutoModelForCausalLM.from_pretrained(chat_base)
    for line in completions(out, "mbpp_plus", "base"):
        assert line["prompt"].startswith("<|im_start|>user\nPlease provide") and line["prompt"].endswith("```python\n")
        ids = tokenizer(line["prompt"], return_tensors="pt")["input_ids"]
        made = greedy_tokens(model, ids, 20)
        text = tokenizer.decode(made, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert text.startswith(line["completion"]) and line["prompt_tokens"] == ids.shape[1]
        assert line["tokens"] == len(made) or line["finish_reason"] == "stop"


@pytest.mark.parametrize("merge", [False, True])
def test_an_adapter_that_cannot_be_evaluated_is_refused_at_once(make_adapter, models_of, chat_base, crux, merge):
    other, damaged = make_adapter("other", 1, str(chat_base)), make_adapter("damaged", 1)
    (damaged / "adapter_model.safetensors").write_bytes(b"half of it")
    for adapter, message in ((other, "is an adapter for another base"), (damaged, "damaged or cut off")):
        with pytest.raises(AdapterError, match=message):
            make_eval_plan(models_of(adapter, base="tiny"), [EvalTask(BENCHMARKS[CRUX[1]], crux)], merge)


def made(text: str, stopped: bool = False) -> Generation:
    tokens = tuple(build_tokenizer()(text)["input_ids"])
    return Generation(text.replace("<eos>", "").replace("<pad>", ""), (5, 6), tokens, (0.0,) * len(tokens), 0.0, stopped)


def finished(text: str, stop: tuple[str, ...], kind: str = "raw", stopped: bool = False):
    template = replace(load_template("azr_math", BENCHMARKS["gsm8k"], load_prompts("compact")), stop=stop, kind=kind)
    done = to_completion("one", "prompt", made(text, stopped), template, build_tokenizer())
    return done.completion, done.finish_reason, done.tokens


def test_a_response_is_cut_at_whichever_stop_text_comes_first():
    assert finished("return x\nprint(x)\n```\n", ("\n```\n", "\nprint("), stopped=True)[:2] == ("return x", "stop")
    assert finished("x = 1\nprint(x)", ("\n```\n", "\nprint(")) == ("x = 1", "stop", len(made("x = 1\nprint(x)").tokens))
    assert finished("x = 1", ("\n```\n", "\nprint(")) == ("x = 1", "length", len(made("x = 1").tokens))
    assert finished("x = 1", ("\n```\n",), stopped=True)[1] == "stop"
    assert finished("", ("\n```\n",)) == ("", "length", 0)


def test_a_stop_text_that_is_a_control_token_is_found_though_decoding_leaves_it_out():
    assert finished("ab<pad>cd", ("</s>", "<pad>")) == ("ab", "stop", 5)
    assert finished("ab<pad>", ("<pad>",)) == ("ab", "stop", 3)
    assert finished("a\nprint(b<pad>c", ("\nprint(", "<pad>"))[:2] == ("a", "stop")
    assert finished("ab<pad>c\nprint(d", ("\nprint(", "<pad>"))[:2] == ("ab", "stop")


def test_a_solvers_answer_keeps_its_closing_tag():
    text = "x</think><answer>```output\n1\n```</answer>"
    assert finished(text, ("</answer>",), kind="solve", stopped=True) == (text, "stop", len(made(text).tokens))
