"""Which base for SQL: one for SQL alone, or one for Python and SQL that starts from the tiny base? Short trainings of equal budget.

    python -m experiments.tiny_base.languages --work DIR      writes results/languages.json; ten minutes of one core

Both arms see the same number of documents, a fifth of those of ``both`` in Python. Measured are the loss on the responses of fresh
documents by kind, beside that of the tiny base on Python, and greedy answers to infer-output. They are compared as texts, for sql_o up to
the order of rows, so nothing that a model wrote is executed.
"""

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from experiments.tiny_base.corpus import draw_shard
from experiments.tiny_base.data import PretrainConfig, Stage, tokenised
from experiments.tiny_base.documents import Document
from experiments.tiny_base.mixtures import MIXTURES
from experiments.tiny_base.pretrain import Model, new_model, pretrain, start_from
from experiments.tiny_base.recipes import LANGUAGES
from experiments.tiny_base.tokenizer import build_tokenizer, vocabulary_size

from populora.tasks.parsing import answer_text

RESULTS = Path(__file__).with_name("results")
FRESH = 1_000_000
"""Index of the shard of fresh documents: no recipe comes so far."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder for the checkpoints")
    parser.add_argument("--arms", nargs="+", default=["start", "alone", "both"], choices=["start", "alone", "both"])
    parser.add_argument("--documents", type=int, default=500, help="fresh documents of each language")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS / "languages.json")
    chosen = parser.parse_args()
    documents = fresh_documents(1, chosen.documents)
    results = json.loads(chosen.out.read_text()) if chosen.out.exists() else {}
    for arm in chosen.arms:
        config = arm_config(arm, chosen.workers)
        model = base_model(config) if arm == "start" else pretrain(config, chosen.work / arm, progress=print)
        results[arm] = measure(model.eval(), documents, ["code_o"] if arm == "start" else ["sql_o", "code_o"][: 1 + (arm == "both")])
        chosen.out.write_text(json.dumps(results, indent=1) + "\n")
        print(arm, results[arm], flush=True)


def arm_config(arm: str, workers: int = 1) -> PretrainConfig:
    """The recipe of an arm: ``alone`` from scratch on SQL, ``both`` from the tiny base with a fifth of Python."""
    name, start = ("sql_short", "") if arm == "alone" else ("both_short", "tiny")
    stage = Stage(3e-3, ((name, 4),), decay_shards=2)
    return PretrainConfig(shard_documents=2048, stages=(stage,), workers=workers, languages=LANGUAGES, start=start)


def base_model(config: PretrainConfig) -> Model:
    """The model that training begins from."""
    model = new_model(config, vocabulary_size(build_tokenizer(config.languages)))
    start_from(model, config.start)
    return model


def fresh_documents(seed: int, count: int) -> list[Document]:
    """Documents that no arm has seen, of both languages."""
    return [document for name in ("sql_short", "summarising") for document in draw_shard(seed, FRESH, count, MIXTURES[name])]


@torch.no_grad()
def measure(model: Model, documents: list[Document], asked: list[str]) -> dict[str, Any]:
    """Losses by kind, and the accuracy of greedy answers to the tasks ``asked``."""
    accuracy = {name: output_accuracy(model, [each for each in documents if each.kind == f"solve {name}"]) for name in asked}
    return {"loss": losses(model, documents), "greedy": accuracy}


def losses(model: Model, documents: list[Document]) -> dict[str, float]:
    """Loss a token of the responses, by kind, in nats."""
    sums: dict[str, Counter] = {}
    for document, row in zip(documents, tokenised(documents, 0.0, LANGUAGES), strict=True):
        tokens, weights = torch.tensor([row.tokens]), torch.tensor(row.weights[1:])
        chosen = model(tokens).logits[0, :-1].log_softmax(-1).gather(-1, tokens[0, 1:, None])[:, 0]
        sums.setdefault(document.kind, Counter()).update({"loss": -float((chosen * weights).sum()), "tokens": float(weights.sum())})
    return {kind: round(total["loss"] / total["tokens"], 4) for kind, total in sorted(sums.items())}


def output_accuracy(model: Model, documents: list[Document]) -> dict[str, float]:
    """Share of right greedy answers to infer-output: as the model likes, and where it must answer at once or, in SQL, reason."""
    styles = ("free", "direct", "reasoned")[: 3 if "sql" in documents[0].kind else 2]
    shares = {}
    for style in styles:
        responses = greedy(model, [document.prompt + opening(document, style) for document in documents])
        right = [lines(text) == lines(document.response) for text, document in zip(responses, documents, strict=True)]
        shares[style] = round(sum(right) / len(documents), 3)
    return {**shares, "problems": len(documents)}


def opening(document: Document, style: str) -> str:
    """How an answer of that style begins. A trace in SQL begins with the table that is read first."""
    if style == "reasoned":
        return "\nFROM u" if "(SELECT" in document.prompt.replace("AS (SELECT", "") else "\nFROM t"
    return "</think>" if style == "direct" else ""


def lines(response: str) -> list[str]:
    """The lines of an answer, without their order."""
    return sorted(answer_text(response).split("\n"))


def greedy(model: Model, prompts: list[str]) -> list[str]:
    """Greedy responses of at most 224 tokens, with whatever the prompt already said of the answer."""
    tokenizer: Any = build_tokenizer(LANGUAGES)
    responses = []
    for start in range(0, len(prompts), 64):
        batch = tokenizer(prompts[start : start + 64], return_tensors="pt", padding=True, padding_side="left", return_token_type_ids=False)
        tokens = model.generate(**batch, max_new_tokens=224, do_sample=False, pad_token_id=tokenizer.pad_token_id)
        responses += tokenizer.batch_decode(tokens[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)
    return responses


if __name__ == "__main__":
    main()
