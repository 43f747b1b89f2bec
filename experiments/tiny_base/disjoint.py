"""Check that a tiny base has not seen its evaluation programs: every program of its whole pretraining corpus against the held-out suite, or
other suites.

    python -m experiments.tiny_base.disjoint [--workers 2]                      writes disjoint.json; half an hour of CPU time
    python -m experiments.tiny_base.disjoint --base tiny_sql --out disjoint_sql.json
    python -m experiments.tiny_base.disjoint --suites benchmarks/claims/suites/*.parquet --out disjoint_claims.json

The corpus is a pure function of the recipe that ships with the base, so all of it is drawn again, shard by shard, and every program
that the generators handed out is compared: by what the split is made by (normalised syntax tree, or text of a statement), and up to the
names of variables, which no such split keeps apart: short programs are few. What the base was started from has a check of its own.
"""

import argparse
import builtins
import hashlib
import json
import keyword
import re
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from experiments.tiny_base import corpus
from experiments.tiny_base.data import PretrainConfig, Stage, mixture_of
from experiments.tiny_base.samples import draw_sample, normalised
from experiments.tiny_base.sql import corpus as sql_corpus
from experiments.tiny_base.sql.samples import draw_sample as draw_statement
from experiments.tiny_base.sql.samples import normalised as normalised_statement

from populora.core.config import BaseConfig
from populora.core.types import task_types
from populora.engine.model.loading import base_folder
from populora.training.evaluation import load_held_out

RESULTS = Path(__file__).with_name("results")
PER_TYPE = 216
_NAME = re.compile(r"(?<![.\w])[A-Za-z_]\w*")
_SQL_NAME = re.compile(r"'\w*'|\b[a-z]\b")
_FIXED = {*keyword.kwlist, *dir(builtins), "f", "g"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default="tiny")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--shards", type=int, default=0, help="only so many shards, for a try; 0 for all")
    parser.add_argument("--suites", type=Path, nargs="+", help="Parquet files of problems to compare instead of the held-out suite")
    parser.add_argument("--out", type=Path, default=RESULTS / "disjoint.json")
    chosen = parser.parse_args()
    config, started = recipe_of(chosen.base), time.monotonic()
    shards = range(chosen.shards or config.shards)
    trees: set[bytes] = set()
    shapes: set[bytes] = set()
    programs = 0
    with ProcessPoolExecutor(chosen.workers) as pool:
        for index, (count, these_trees, these_shapes) in enumerate(pool.map(partial(_shard, config), shards)):
            programs, trees, shapes = programs + count, trees | these_trees, shapes | these_shapes
            print(
                f"shard {index + 1} of {len(shards)}: {programs} programs, {len(trees)} syntax trees, {time.monotonic() - started:.0f} s",
                flush=True,
            )
    if chosen.suites:
        suites = {file.stem: pq.read_table(file, columns=["id", "program", "author"]).to_pylist() for file in chosen.suites}
    else:
        suites = {"held_out": list(map(vars, load_held_out(BaseConfig(path=chosen.base), PER_TYPE, task_types(config.languages))))}
    result = {
        "shards": len(shards), "programs": programs, "syntax_trees": len(trees),
        **{name: _compared(suite, trees, shapes) for name, suite in suites.items()}, "seconds": round(time.monotonic() - started),
    }  # fmt: skip
    chosen.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


def _compared(suite: list[dict[str, Any]], trees: set[bytes], shapes: set[bytes]) -> dict[str, Any]:
    """Count the problems whose program the corpus has. Their authors are their levels."""
    seen = [problem for problem in suite if _digest(_identity(problem["program"])) in trees]
    alike = [problem for problem in suite if _digest(_shape(problem["program"])) in shapes]
    return {
        "items": len(suite), "by_level": _by_level(suite), "distinct_programs": len({_identity(problem["program"]) for problem in suite}),
        "seen_in_the_corpus": len(seen), "seen_up_to_names_of_variables": len(alike), "seen_up_to_names_by_level": _by_level(alike),
        "ids_seen_up_to_names": [problem["id"] for problem in alike],
    }  # fmt: skip


def recipe_of(base: str) -> PretrainConfig:
    """The recipe that ships with a base."""
    recipe = json.loads((base_folder(BaseConfig(path=base)) / "recipe.json").read_text())["config"]
    stages = tuple(
        Stage(one["learning_rate"], tuple((name, count) for name, count in one["phases"]), one["decay_shards"]) for one in recipe["stages"]
    )
    return PretrainConfig(**{**recipe, "stages": stages, "languages": tuple(recipe.get("languages", ["python"]))})


def _shard(config: PretrainConfig, index: int) -> tuple[int, set[bytes], set[bytes]]:
    """Programs of one shard: how many, and digests of their identities and of their texts without names."""
    drawn: list[str] = []

    def recording(draw: Callable) -> Callable:
        def recorded(*arguments: Any, **options: Any):
            sample = draw(*arguments, **options)
            drawn.append(sample.source)
            return sample

        return recorded

    corpus.draw_sample, sql_corpus.draw_sample = recording(draw_sample), recording(draw_statement)
    corpus.draw_shard(config.seed, index, config.shard_documents, mixture_of(config, index))
    return len(drawn), {_digest(_identity(source)) for source in drawn}, {_digest(_shape(source)) for source in drawn}


def _is_sql(source: str) -> bool:
    return source.startswith(("SELECT ", "WITH "))


def _identity(source: str) -> str:
    return normalised_statement(source) if _is_sql(source) else normalised(source)


def _shape(source: str) -> str:
    """The text with variables named by their first occurrence."""
    names: dict[str, str] = {}
    if _is_sql(source):
        return _SQL_NAME.sub(lambda match: match[0] if match[0][0] == "'" else names.setdefault(match[0], f"v{len(names)}"), source)
    return _NAME.sub(lambda match: match[0] if match[0] in _FIXED else names.setdefault(match[0], f"v{len(names)}"), source)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:12]


def _by_level(problems: list[dict[str, Any]]) -> dict[str, int]:
    return dict(sorted(Counter(problem["author"] for problem in problems).items()))


if __name__ == "__main__":
    main()
