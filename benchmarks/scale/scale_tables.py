"""The tables of docs/scale.md, from the results file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

MOVES = {
    "weights and moments of all adapters to the controller": "state_to_controller",
    "new weights from the controller to every node": "publish_all_from_controller",
    "new weights from their owners to every node": "publish_all_from_owners",
    "new weights, each engine with its own node's adapters": "publish_sharded",
    "rows: engines to controller to learners": "token_batches",
}
HOLDINGS = {
    "controller: weights and moments": "controller_state_gb",
    "controller: responses as Python numbers": "controller_tokens_as_python_gb",
    "controller: responses as arrays": "controller_tokens_as_arrays_gb",
    "an engine with all adapters": "engine_all_adapters_gb",
    "an engine with its node's adapters": "engine_shard_gb",
    "a learner: weights and moments": "rank_state_gb",
}


def tables(found: Mapping[str, Any]) -> dict[str, str]:
    """Markdown by name."""
    return {
        "balance": _balance(found["balance"]),
        "controller": _controller(found),
        "traffic": _traffic(found),
        "held": _held(found["traffic"]),
    }


def with_tables(page: str, made: Mapping[str, str]) -> str:
    """The page with each table between ``<!-- name -->`` and ``<!-- end -->``. Raises ``ValueError`` for one that has no place."""
    for name, table in made.items():
        page, places = re.subn(
            rf"(<!-- {name} -->\n).*?(<!-- end -->)", lambda found, table=table: found[1] + table + found[2], page, flags=re.S
        )
        if places != 1:
            raise ValueError(f"expected one place for the table '{name}' in the page, got {places}: <!-- {name} --> … <!-- end -->")
    return page


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _balance(cases: Sequence[Mapping[str, Any]]) -> str:
    header = [
        "adapters on ranks",
        "population",
        "alone",
        "with helpers",
        "goal",
        "pairs (across nodes)",
        "GB a step",
        "`split_work` + `assign`",
    ]
    return _table(header, [_case(case) for case in cases])


def _case(case: Mapping[str, Any]) -> list[str]:
    goal = f"{case['goal']} {'met' if case['met'] else '**missed**'}" if "goal" in case else ""
    return [
        f"{case['adapters']:,} on {case['ranks']:,}", case["population"],
        *(f"{case[name]['median']:.2f} ({case[name]['worst']:.2f})" for name in ("alone", "helped")),
        goal,
        f"{case['pairs']['median']:.0f} ({case['far_pairs']['median']:.0f})", f"{case['gigabytes']['median']:.1f}",
        f"{case['cut_ms']['median']:.0f} + {case['assign_ms']['median']:.1f} ms",
    ]  # fmt: skip


def _controller(found: Mapping[str, Any]) -> str:
    sizes = found["controller"]
    header = ["CPU seconds a step", *(f"{size['members']:,} members" for size in sizes)]
    names = sizes[0]["seconds"]
    rows = [[name, *(_figure(size["seconds"][name]) for size in sizes)] for name in names]
    return _table(header, [*rows, ["together", *(_figure(sum(size["seconds"].values())) for size in sizes)]])


def _traffic(found: Mapping[str, Any]) -> str:
    by_ranks = found["traffic"]
    header = [
        "GB a step (seconds at 25, at 100 Gbit/s)",
        *(f"{int(ranks):,} ranks, {each['nodes']} nodes" for ranks, each in by_ranks.items()),
    ]
    rows = [[name, *(_move(each[key]) for each in by_ranks.values())] for name, key in MOVES.items()]
    helped = {
        case["ranks"]: case["gigabytes"]["median"]
        for case in found["balance"]
        if case["population"] == "means x 4" and case["adapters"] == 1000
    }
    rows.append(["helpers, means x 4 (simulated; many links)", *(f"{helped[int(ranks)]:,.0f}" for ranks in by_ranks)])
    rows.append(["seconds of training, for comparison", *(f"{each['compute_seconds']:,.0f} s" for each in by_ranks.values())])
    return _table(header, rows)


def _move(moved: Mapping[str, float]) -> str:
    if not moved["total_gb"]:
        return "0"
    seconds = ", ".join(_figure(value) for name, value in moved.items() if name.startswith("seconds"))
    return f"{moved['total_gb']:,.0f} ({seconds})"


def _held(by_ranks: Mapping[str, Any]) -> str:
    header = ["GB held", *(f"{int(ranks):,} ranks" for ranks in by_ranks)]
    return _table(header, [[name, *(_figure(each["held"][key]) for each in by_ranks.values())] for name, key in HOLDINGS.items()])


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"
