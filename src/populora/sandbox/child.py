"""The work of one forked child: run a program, read values, measure a program. Standard library only.

What a program is, and how its inputs and outputs are written, is up to the runner of its domain (`populora.sandbox.runner`). The jail
confines the program; nothing in this module does. Values leave as tagged trees (`populora.sandbox.trees`), beside them their texts where
the domain writes its own.
"""

import builtins
from typing import Any

from populora.sandbox import complexity, python_runner
from populora.sandbox.runner import PYTHON, Refused
from populora.sandbox.trees import order_free, tree_of

RUNNERS: dict[str, Any] = {PYTHON: python_runner}
"""The runner modules by domain. The zygote adds those of other domains before it forks."""


def perform(job: dict[str, Any], calls: int, limits: dict[str, Any]) -> dict[str, Any]:
    """Do one job and return its result as JSON-ready data."""
    try:
        return {"run": _run, "parse": _parse, "measure": _measure}[job["mode"]](RUNNERS[job["domain"]], job, calls, limits)
    except Refused as refusal:
        return {"kind": "error", "reason": str(refusal)}
    except BaseException as error:  # noqa: BLE001 - the program's own failure, whatever it raises, is its result
        return {"kind": "error", "reason": _name(error)}


def _name(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return "memory"
    nearest = next(kind for kind in type(error).__mro__ if getattr(builtins, kind.__name__, None) is kind)
    return f"exception:{nearest.__name__}"


def _run(runner: Any, job: dict[str, Any], calls: int, limits: dict[str, Any]) -> dict[str, Any]:
    options = {"accept_expressions": True} if limits["expressions"] and runner is python_runner else {}
    call = runner.load(job["program"], job["rules"], **options)
    write = getattr(runner, "write_output", None)
    trees: list[Any] = []
    texts: list[str] = []
    for text in job["texts"]:
        first = call(text, 0)
        trees.append(tree_of(first, [limits["max_output_chars"]]))  # before the next call, which may change what this one returned
        texts += [write(first)] if write else []
        for repetition in range(1, calls):
            if order_free(tree_of(call(text, repetition), [limits["max_output_chars"]])) != order_free(trees[-1]):
                return {"kind": "rejected_nondeterministic"}
    return {"kind": "ok", "values": trees, "texts": texts, "doubtful": getattr(call, "doubtful", False)}


def _parse(runner: Any, job: dict[str, Any], calls: int, limits: dict[str, Any]) -> dict[str, Any]:
    side = "inputs" if job["as_inputs"] else "output"
    parse, write = getattr(runner, f"parse_{side}"), getattr(runner, f"write_{side}", None)
    values = [parse(text) for text in job["texts"]]
    trees = [tree_of(value, [2 * limits["max_source_chars"]]) for value in values]
    return {"kind": "ok", "values": trees, "texts": [write(value) for value in values] if write else []}


def _measure(runner: Any, job: dict[str, Any], calls: int, limits: dict[str, Any]) -> dict[str, Any]:
    measures, normal_form = runner.measure(job["program"])
    return {"kind": "ok", "measures": [*measures, complexity.fingerprint(normal_form)]}
