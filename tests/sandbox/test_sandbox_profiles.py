"""What the profiles give beyond the standard library, and what a program can learn of where and when it runs."""

import ast
from dataclasses import replace

import pytest

from populora.core.errors import SandboxUnavailableError
from populora.core.types import VerdictKind
from populora.sandbox import expressions
from populora.sandbox.pool import SandboxPool
from populora.sandbox.protocol import PROFILES, Job


@pytest.fixture(scope="module", params=["full", "standard", "weak"])
def evaluation(request):
    try:
        pool = SandboxPool(PROFILES["evaluation"], workers=1, tier=request.param, allow_weak=True)
    except SandboxUnavailableError as error:
        pytest.skip(str(error))
    with pool:
        yield request.param, pool


@pytest.fixture(scope="module")
def training():
    with SandboxPool(PROFILES["training"], workers=1, allow_weak=True) as pool:
        yield pool


def test_evaluation_has_numpy_and_nothing_else_of_the_environment(evaluation):
    _, pool = evaluation
    product = "import numpy as np\ndef f(n):\n    return (np.ones((n, n)) @ np.ones((n, n))).sum().item(), np.linalg.det(np.eye(n)).item()"
    number, array, torch, scipy = pool.run(
        [
            Job("run", product, ("200",)), Job("run", "import numpy\ndef f(x): return numpy.zeros(2)", ("1",)),
            Job("run", "import torch\ndef f(x): return 1", ("1",)), Job("run", "import scipy\ndef f(x): return 1", ("1",)),
        ],
        twice=True,
    )  # fmt: skip
    assert number.values[0].literal == "(8000000.0, 1.0)"
    assert array.reason == "unsupported_value"
    assert torch.reason == scipy.reason == "exception:ModuleNotFoundError"


def test_numpys_generators_are_chance_too(evaluation):
    _, pool = evaluation
    sources = [
        "def f(): return np.random.rand()",
        "R = np.random.rand()\ndef f(): return R",
        "def f(): return np.random.default_rng().random()",
    ]
    verdicts = pool.run([Job("run", f"import numpy as np\n{source}", ("",)) for source in sources], twice=True)
    assert {verdict.kind for verdict in verdicts} == {VerdictKind.REJECTED_NONDETERMINISTIC}
    seeded = "import numpy as np\ndef f(): return np.random.default_rng(1).integers(0, 9, 5).tolist()"
    assert pool.run([Job("run", seeded, ("",))], twice=True)[0].ok


def test_evaluation_allows_threads_where_a_filter_forbids_processes(evaluation):
    tier, pool = evaluation
    threads = (
        "import threading\ndef f(n):\n    seen = []\n    all = [threading.Thread(target=seen.append, args=(k,)) for k in range(n)]\n"
        "    for t in all: t.start()\n    for t in all: t.join()\n    return sorted(seen)"
    )
    running, forking = pool.run([Job("run", threads, ("3",)), Job("run", "import os\ndef f(n): return os.fork()", ("3",))])
    assert forking.kind is not VerdictKind.OK
    assert (running.values[0].literal if running.ok else running.reason) == ("exception:RuntimeError" if tier == "weak" else "[0, 1, 2]")


PURE = [
    ("range(3)", "[0, 1, 2]"), ("'a b'.split()", "['a', 'b']"), ("dict(f=1, g=2)", "['f', 'g']"), ("OWN[:]", "[7]"), ("*[[1]]", "[1]"),
    ("map(lambda x: x * 2, [1])", "[2]"),
]  # fmt: skip
IMPURE = [
    "OS.listdir('/')", "OS.path.os.getcwd()", "gen(1).gi_frame.f_globals", "[SHARED.update(z=26), 'z'][1:]", "helper(1)", "str.mro(int)",
    "f(1)", "().__class__.__bases__", "open('/etc/passwd')", "'{0.__class__}'.format(1)", "__import__('os')", "(x := 1)", "1) or (2",
    "eval('1')", "[n for n in (1, 2)]",
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), [*PURE, *((text, None) for text in IMPURE)])
def test_evaluation_takes_pure_expressions_as_arguments_and_training_does_not(evaluation, training, text, value):
    _, pool = evaluation
    definitions = "import os as OS\nOWN, SHARED = [7], {OS: 1}\ndef gen(x): yield x\ndef helper(x): return [x]\n"
    job = Job("run", f"{definitions}def f(x): return list(x)", (text,))
    (verdict,) = pool.run([job], twice=True)
    assert (verdict.values[0].literal if verdict.ok else None) == value
    assert training.run([job])[0].reason == "not_a_literal"


def test_an_argument_cannot_change_the_program(evaluation):
    _, pool = evaluation
    job = Job("run", "SEEN = {'a': 1}\ndef f(key): return SEEN.get(key)", ("[SEEN.pop('a'), SEEN.copy(), 'a'][2]",))
    assert pool.run([job], twice=True)[0].values[0].literal == "1"


@pytest.mark.parametrize("text", ["a._b", "lambda: (yield)", "f'{a}'", "[x for x in y]", "await a", "a.format", "a.gi_frame", "a.update"])
def test_what_could_reach_the_interpreter_is_not_pure(text):
    assert not expressions.is_pure(ast.parse(f"lambda: {text}" if text == "await a" else text, mode="eval").body)


def test_a_package_that_is_not_installed_is_named():
    with pytest.raises(SandboxUnavailableError, match="no_such_package"):
        SandboxPool(replace(PROFILES["evaluation"], packages=("no_such_package",)), workers=1, allow_weak=True)


CLOCKS = [
    "time.time()", "time.time_ns()", "time.localtime()[0]", "time.gmtime()[0]", "time.ctime()", "time.asctime()", "time.strftime('%Y')",
    "time.monotonic()", "time.clock_gettime(0)", "datetime.datetime.now().year", "datetime.datetime.utcnow().day",
    "datetime.date.today().month", "datetime.datetime.today().hour", "datetime.datetime.now(datetime.timezone.utc).minute",
]  # fmt: skip


@pytest.mark.parametrize("clock", CLOCKS)
def test_clocks_differ_in_a_pair_however_coarsely_they_are_read(best, clock):
    program = f"import time, datetime\nNOW = {clock}\ndef f(): return NOW"  # once, so that the two calls agree
    assert best.run([Job("run", program, ("",))], twice=True)[0].reason == "processes_differ"


def test_times_that_are_given_are_converted_as_ever(best):
    program = (
        "import time, datetime\nclass D(datetime.datetime): pass\n"
        "def f(): return time.gmtime(0)[:3], time.strftime('%Y', time.gmtime(0)), time.asctime(time.gmtime(0)), type(D.now()) is D,"
        " str(datetime.datetime.fromtimestamp(0, datetime.timezone.utc)), isinstance(datetime.datetime.now(), datetime.datetime)"
    )
    (verdict,) = best.run([Job("run", program, ("",))], twice=True)
    assert verdict.values[0].literal == "((1970, 1, 1), '1970', 'Thu Jan  1 00:00:00 1970', True, '1970-01-01 00:00:00+00:00', True)"
