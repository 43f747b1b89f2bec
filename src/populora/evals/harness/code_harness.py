"""HumanEval+ and MBPP+ inside the sandbox: evalplus's own functions decide, this file feeds them. Loaded by a zygote as ``harness``.

Deviations from ``evalplus.evaluate`` 0.3.1:
- The sandbox replaces its guards. Its time limits (wall clock, by signals) count CPU time, so that a busy machine changes no verdict.
- Expected outputs come from the reference solution when a test needs them, in the same process; evalplus pickles all of them (MBPP+: 4 GB).
- HumanEval/32: 0.3.1 does not record the test, so that no solution passes (fixed in its repository, never released). Here our function puts
  the root into the polynomial, and its value is compared as any other.
As in evalplus, solution and expected outputs share a process, so a solution could be made to cheat this grader.
"""

import contextlib
import copy
import json
import math
import sys
import types

from harness import Clock, TimeOut, _cpu_time  # clock.py


class _Absent(types.ModuleType):
    """A stub of a library that evalplus needs only to download data or to show progress."""

    def __getattr__(self, name):
        return lambda *_, **__: None


_ABSENT = ("appdirs", "datasets", "psutil", "tempdir", "termcolor", "tqdm", "wget")
sys.modules.update({name: _Absent(name) for name in _ABSENT})
import evalplus.data.mbpp as mbpp  # noqa: E402
import evalplus.eval as evaluation  # noqa: E402
from evalplus.eval._special_oracle import MBPP_OUTPUT_NOT_NONE_TASKS, _poly  # noqa: E402
from evalplus.gen.util import trusted_exec  # noqa: E402
from evalplus.sanitize import sanitize  # noqa: E402

for _name in _ABSENT:  # solutions must not see the stubs
    del sys.modules[_name]

_swallow_io = evaluation.swallow_io


class _LazySequence:
    """A sequence whose elements are computed on access."""

    def __init__(self, element):
        self._element = element

    def __getitem__(self, index):
        return self._element(index)


def f(request):
    """Turn the JSON of a solution with its item into that of ``{"verdict", "check", "test"}``; with ``extract``, of its extraction."""
    question = json.loads(request)
    if "extract" in question:
        return json.dumps(_extracted(question["extract"], question["entry_point"], question["times"]))
    dataset = "mbpp" if question["task_id"].startswith("Mbpp") else "humaneval"
    for check in ("base", "plus"):
        inputs = list(question[f"{check}_input"])
        if dataset == "mbpp":
            inputs = list(mbpp.mbpp_deserialize_inputs(question["task_id"], inputs))
        verdict, test = _checked(dataset, question, inputs)
        if verdict != "pass":
            return json.dumps({"verdict": verdict, "check": check, "test": test})
    return json.dumps({"verdict": "pass"})


def _extracted(text, entry_point, times):
    """Extract the solution with evalplus; the text itself where it cannot read it."""
    try:
        with Clock(times["extraction_seconds"]).limit(math.inf):
            return {"solution": sanitize(text, entry_point)}
    except TimeOut:
        return {"failure": "timeout"}
    except (ValueError, RecursionError):
        return {"solution": text}


def _checked(dataset, item, inputs):
    """Run one check of evalplus; returns its verdict, and the number of the first test that failed."""
    clock = Clock(item["times"]["check_seconds"])
    evaluation.time_limit, evaluation.swallow_io = clock.limit, lambda: _quiet(clock)
    status, progress, details = types.SimpleNamespace(value=3), types.SimpleNamespace(value=0), [False] * len(inputs)
    limits, expected = _reference(item, inputs)
    code, entry_point = item["solution"], item["entry_point"]
    if entry_point == "find_zero":
        code, entry_point = f"from harness import root_check\nroot_found = root_check({code!r}, {item['atol']!r})", "root_found"
    evaluation.unsafe_execute(
        dataset, entry_point, code, inputs, expected, limits, item["atol"], True, status, details, progress
    )  # fmt: skip
    if status.value == 0 and progress.value == len(inputs) and all(details):
        return "pass", 0
    test = max(progress.value - 1, 0)
    if clock.expired:
        return "timeout", test
    return ("wrong", test) if progress.value else ("not_loadable", test)


def _reference(item, inputs):
    """Compute time limits and outputs of tests on access. evalplus reads a test's limit before it runs, and its output afterwards."""
    program, entry_point = compile(item["prompt"] + item["canonical_solution"], "<reference>", "exec"), item["entry_point"]
    outputs = {}

    def limit(index):
        started = _cpu_time()
        expected = trusted_exec(program, [inputs[index]], entry_point, output_not_none=entry_point in MBPP_OUTPUT_NOT_NONE_TASKS)
        outputs.clear()  # they can be huge: one at a time
        outputs[index] = True if entry_point == "find_zero" else expected[0]
        return max(item["times"]["test_seconds"], item["times"]["reference_factor"] * (_cpu_time() - started))

    return _LazySequence(limit), _LazySequence(outputs.__getitem__)


@contextlib.contextmanager
def _quiet(clock):
    """Silence output as evalplus does; loading the solution, outside of any test, has a limit, too."""
    with contextlib.nullcontext() if clock.running else clock.limit(math.inf), _swallow_io():
        yield


def root_check(solution, atol):
    """Check that ``find_zero`` of a solution finds a root (HumanEval/32). Several are right, so outputs cannot be compared."""
    namespace = {}
    exec(solution, namespace)
    find_zero = namespace["find_zero"]
    return lambda xs: bool(abs(_poly(xs, find_zero(copy.deepcopy(xs)))) <= atol)


evaluation.create_tempdir = contextlib.nullcontext
evaluation.reliability_guard = evaluation.query_maximum_memory_bytes = lambda *_, **__: None
