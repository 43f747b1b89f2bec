"""Check that the tiny base has not seen its evaluation programs: every program of its whole pretraining corpus against the held-out suite.

    python -m experiments.tiny_base.disjoint [--workers 2]      writes disjoint.json; half an hour of CPU time

The corpus is a pure function of the recipe that ships with the base, so all of it is drawn again, shard by shard, and every program
that the generator handed out is compared: by normalised syntax tree (what the split is made by), and up to the names of variables,
which no split by syntax trees keeps apart: short programs are few.
"""

import argparse
import builtins
import hashlib
import json
import keyword
import re
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from experiments.tiny_base import corpus
from experiments.tiny_base.data import PretrainConfig, Stage, mixture_of
from experiments.tiny_base.samples import draw_sample, normalised

from populora.core.config import BaseConfig
from populora.engine.model.loading import base_folder
from populora.training.evaluation import load_held_out

RESULTS = Path(__file__).with_name("results")
RECIPE = base_folder(BaseConfig()) / "recipe.json"
PER_TYPE = 216
_NAME = re.compile(r"(?<![.\w])[A-Za-z_]\w*")
_FIXED = {*keyword.kwlist, *dir(builtins), "f", "g"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--shards", type=int, default=0, help="only so many shards, for a try; 0 for all")
    parser.add_argument("--out", type=Path, default=RESULTS / "disjoint.json")
    chosen = parser.parse_args()
    config, started = _config(), time.monotonic()
    shards = range(chosen.shards or config.shards)
    trees: set[bytes] = set()
    shapes: set[bytes] = set()
    programs = 0
    with ProcessPoolExecutor(chosen.workers) as pool:
        for index, (count, these_trees, these_shapes) in enumerate(pool.map(_shard, shards)):
            programs, trees, shapes = programs + count, trees | these_trees, shapes | these_shapes
            print(
                f"shard {index + 1} of {len(shards)}: {programs} programs, {len(trees)} syntax trees, {time.monotonic() - started:.0f} s",
                flush=True,
            )
    suite = load_held_out(BaseConfig(), PER_TYPE)
    seen = [problem for problem in suite if _digest(normalised(problem.program)) in trees]
    alike = [problem for problem in suite if _digest(_shape(problem.program)) in shapes]
    result = {
        "shards": len(shards), "programs": programs, "syntax_trees": len(trees),
        "held_out": {
            "items": len(suite), "by_level": _by_level(suite), "distinct_programs": len({normalised(problem.program) for problem in suite}),
            "seen_in_the_corpus": len(seen), "seen_up_to_names_of_variables": len(alike), "seen_up_to_names_by_level": _by_level(alike),
            "ids_seen_up_to_names": [problem.id for problem in alike],
        },
        "seconds": round(time.monotonic() - started),
    }  # fmt: skip
    chosen.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


def _config() -> PretrainConfig:
    recipe = json.loads(RECIPE.read_text())["config"]
    stages = tuple(
        Stage(one["learning_rate"], tuple((name, count) for name, count in one["phases"]), one["decay_shards"]) for one in recipe["stages"]
    )
    return PretrainConfig(**{**recipe, "stages": stages})


def _shard(index: int) -> tuple[int, set[bytes], set[bytes]]:
    """Programs of one shard: how many, and digests of their syntax trees and of their texts without names."""
    drawn: list[str] = []

    def recorded(*arguments: Any, **options: Any):
        sample = draw_sample(*arguments, **options)
        drawn.append(sample.source)
        return sample

    config, corpus.draw_sample = _config(), recorded
    corpus.draw_shard(config.seed, index, config.shard_documents, mixture_of(config, index))
    return len(drawn), {_digest(normalised(source)) for source in drawn}, {_digest(_shape(source)) for source in drawn}


def _shape(source: str) -> str:
    """The text with variables named by their first occurrence."""
    names: dict[str, str] = {}
    return _NAME.sub(lambda match: match[0] if match[0] in _FIXED else names.setdefault(match[0], f"v{len(names)}"), source)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:12]


def _by_level(problems: list[Any]) -> dict[str, int]:
    return dict(sorted(Counter(problem.author for problem in problems).items()))


if __name__ == "__main__":
    main()
