"""A harness: our own code beside the libraries that it needs, loaded once into the zygote, asked by programs that are one line long."""

from dataclasses import replace

import pytest
from pool_state import outcome

from populora.core.errors import SandboxUnavailableError
from populora.sandbox.pool import SandboxPool
from populora.sandbox.protocol import Job, Limits

FIRST = "import math\n\n\ndef doubled(text):\n    return text * 2\n"
SECOND = "from harness import doubled\n\nCALLS = []\n\n\ndef f(text):\n    CALLS.append(text)\n    return f'{doubled(text)} {len(CALLS)}'\n"
ASK = "from harness import f"


@pytest.fixture
def harness(tmp_path):
    for name, source in (("first.py", FIRST), ("second.py", SECOND)):
        (tmp_path / name).write_text(source)
    return Limits(harness=(str(tmp_path / "first.py"), str(tmp_path / "second.py")))


def test_a_harness_is_asked_by_programs_and_keeps_nothing_from_one_to_the_next(harness):
    with SandboxPool(harness, 1, allow_weak=True) as pool:
        verdicts = [pool.run([Job("run", ASK, (repr(text),))])[0] for text in ("a", "b\n'\"")]
    assert [verdict.values[0].text for verdict in verdicts] == ["aa 1", "b\n'\"b\n'\" 1"]


def test_a_reply_is_read_up_to_the_longest_that_a_harness_may_give(harness):
    honest = "def f(n):\n    return '\"' * n"
    forged = (
        "import os, struct\ndef f(n):\n"
        '    body = b\'[{"kind": "ok", "values": [""]}]\' + b\' \' * n\n'
        "    frame = struct.pack('>I', len(body)) + body\n    while frame: frame = frame[os.write(3, frame):]\n    os._exit(0)"
    )
    with SandboxPool(replace(harness, max_output_chars=100_000), 1, allow_weak=True) as pool:
        verdicts = [pool.run([Job("run", program, (str(n),))])[0] for program, n in ((honest, 99_990), (forged, 9), (forged, 1_000_000))]
    assert [outcome(verdict) for verdict in verdicts] == ["ok '" + '"' * 99_990 + "'", "ok ''", "error exit_without_result"]


def test_only_a_string_has_its_text(harness):
    with SandboxPool(harness, 1, allow_weak=True) as pool:
        (verdict,) = pool.run([Job("run", "def f(x):\n    return [x]", ("'a'",))])
    assert verdict.values[0].text is None and verdict.values[0].literal == "['a']"


def test_a_program_without_the_harness_cannot_import_it():
    with SandboxPool(Limits(), 1, allow_weak=True) as pool:
        (verdict,) = pool.run([Job("run", ASK, ("1",))])
    assert verdict.reason == "exception:ModuleNotFoundError"


def test_a_harness_that_does_not_load_is_told_at_the_start(tmp_path):
    (tmp_path / "broken.py").write_text("import no_such_library\n")
    with pytest.raises(SandboxUnavailableError, match="no_such_library"):
        SandboxPool(Limits(harness=(str(tmp_path / "broken.py"),)), 1, allow_weak=True)
