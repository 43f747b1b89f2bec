"""`populora verify` as a program of another language sees it: lines in, lines out, and nothing else."""

import json
import os
import select
import signal
import subprocess
import sys
import time

import pytest
from orphans import alive, descendants

from populora.cli.verify import answer_line, main
from populora.core.errors import ConfigError, SandboxFault
from populora.tasks.checks import Verifier

COMMAND = [sys.executable, "-m", "populora.cli.main", "verify", "--allow-weak", "--cpu-seconds", "1"]
ADD = "def f(x):\n    return x + 1"
SLEEP = "import time\ndef f(x):\n    time.sleep(x)\n    return x"
RUN = {"id": 1, "role": "program", "program": ADD, "inputs": "41"}


def verify(lines: list[bytes], *flags: str) -> list[dict]:
    done = subprocess.run([*COMMAND, *flags], input=b"".join(lines), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def lines(*requests: dict) -> list[bytes]:
    return [json.dumps(request).encode() + b"\n" for request in requests]


def test_each_role_gets_its_result():
    results = verify(
        lines(
            RUN,
            {"id": "i", "role": "input", "program": "def f(x):\n    return x % 5", "answer": "7", "output": "2"},
            {"id": [2], "role": "answer", "program": ADD, "inputs": "1", "answer": "2.0", "output": "2"},
            {"id": None, "role": "solution", "answer": ADD, "pairs": [["1", "2"], ["5", "6"]]},
            {"role": "solution", "answer": ADD, "pairs": [["1", "2"], ["5", "5"]]},
            {"id": 6, "role": "answer", "program": ADD, "inputs": "1", "answer": "1 + 1", "output": "2"},
            {"id": 7, "role": "answer", "program": ADD, "inputs": "1", "answer": "2", "output": "1 + 1"},
            {"id": 8, "role": "program", "program": "def f(x): return 1 / 0", "inputs": "1"},
        ),
        "--workers", "2",
    )  # fmt: skip
    assert results == [
        {"id": 1, "verdict": "ok", "kind": "", "value": "42"},
        {"id": "i", "verdict": "ok", "kind": "", "correct": True},
        {"id": [2], "verdict": "ok", "kind": "", "correct": True},
        {"id": None, "verdict": "ok", "kind": "", "correct": True},
        {"id": None, "verdict": "ok", "kind": "wrong", "correct": False},
        {"id": 6, "verdict": "error", "kind": "not_a_literal", "correct": False},
        {"id": 7, "verdict": "error", "kind": "expected_output:not_a_literal", "correct": False},
        {"id": 8, "verdict": "error", "kind": "exception:ZeroDivisionError", "value": None},
    ]


def test_a_flag_chooses_the_language_of_the_programs():
    database = "t(a,b)\n1,'x'\n2,NULL"
    results = verify(
        lines(
            {"id": 1, "role": "program", "program": "SELECT b, a FROM t", "inputs": database},
            {"id": 2, "role": "input", "program": "SELECT a FROM t", "answer": database, "output": "2\n1"},
            {"id": 3, "role": "answer", "program": "", "inputs": "", "answer": "1,'x'", "output": "1"},
            {"id": 4, "role": "solution", "answer": "SELECT max(a) FROM t", "pairs": [[database, "2"], ["t(a)", "NULL"]]},
            {"id": 5, "role": "program", "program": "ATTACH 'x' AS y", "inputs": database},
            {"id": 6, "role": "program", "program": "SELECT a FROM t", "inputs": "t(a INTEGER)\n'1'"},
            {"id": 7, "role": "answer", "program": "SELECT a FROM t", "inputs": database, "answer": "2\n1", "output": "1\n2"},
            {"id": 8, "role": "answer", "program": "SELECT a FROM t", "inputs": database, "answer": "2\n1", "output": "1\n3"},
        ),
        "--domain", "sql",
    )  # fmt: skip
    assert results == [
        {"id": 1, "verdict": "ok", "kind": "", "value": "NULL,2\n'x',1"},
        {"id": 2, "verdict": "ok", "kind": "", "correct": True},
        {"id": 3, "verdict": "ok", "kind": "wrong_width", "correct": False},
        {"id": 4, "verdict": "ok", "kind": "", "correct": True},
        {"id": 5, "verdict": "error", "kind": "not_one_select", "value": None},
        {"id": 6, "verdict": "error", "kind": "value_coerced", "value": None},
        {"id": 7, "verdict": "ok", "kind": "", "correct": True},
        {"id": 8, "verdict": "ok", "kind": "expected_output:wrong", "correct": False},
    ]


MALFORMED = [
    b"nonsense\n", b"\n", b"5\n", b"[]\n", b'"a"\n', b"null\n", b"{}\n",
    b'{"role": "program"}\n', b"\xff\xfe\n",
    b"{" * 100000 + b"\n", b"[" * 100000 + b"\n",
    b'{"role": ["program"], "program": "", "inputs": ""}\n', b'{"role": "grade"}\n', b"9" * 5000 + b"\n", b"\x00\n",
    b'{"role": "program", "program": 5, "inputs": ""}\n', b'{"role": "program", "program": null, "inputs": ""}\n',
    b'{"role": "solution", "answer": "", "pairs": []}\n', b'{"role": "solution", "answer": "", "pairs": [["1"]]}\n',
    b'{"role": "solution", "answer": "", "pairs": [["1", 2]]}\n', b'{"role": "solution", "answer": "", "pairs": {"1": "2"}}\n',
    b'{"role": "answer", "answer": "1", "output": "1"}\n', b'{"role": "input", "program": "", "answer": "1"}\n',
]  # fmt: skip


def test_a_malformed_line_is_an_error_of_that_line_alone():
    mixed = [line for bad in MALFORMED for line in (bad, *lines(RUN))]
    results = verify([*mixed, b'{"id": 9, "role": "none"}\n', json.dumps(RUN).encode()])  # the last line has no end
    assert [result.get("value") for result in results[1::2]] == ["42"] * (len(MALFORMED) + 1)
    for result in results[: 2 * len(MALFORMED) : 2]:
        assert (result["id"], result["verdict"], result["kind"]) == (None, "error", "malformed_request")
        assert result["detail"].startswith("expected ")
    assert results[-2]["id"] == 9 and "'role'" in results[-2]["detail"]


def start(*flags: str) -> subprocess.Popen:
    return subprocess.Popen([*COMMAND, *flags], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_without_standard_input_it_ends_with_one_message():
    closed = ["sh", "-c", '"$@" <&-', "sh", *COMMAND]
    done = subprocess.run(closed, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2 and "cannot read requests from standard input" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("shell", "fault"),
    [
        ('ulimit -n 12; "$@"', "sandbox process cannot be started: Too many open files"),
        ('"$@" >/dev/full', "cannot write results to standard output: No space left on device"),
    ],
)
def test_what_the_machine_refuses_is_named(shell, fault):
    requests = b"".join(lines(RUN))
    done = subprocess.run(["sh", "-c", shell, "sh", *COMMAND], input=requests, capture_output=True, timeout=300, check=False)
    assert done.returncode == 2 and fault in done.stderr.decode() and b"Traceback" not in done.stderr


def test_a_sandbox_that_fails_decides_nothing(monkeypatch):
    def fail(*_, **__):
        raise SandboxFault("the sandbox failed")

    with Verifier(allow_weak=True) as verifier:
        monkeypatch.setattr(verifier, "run_program", fail)
        answer = json.loads(answer_line(verifier, lines({**RUN, "id": 7})[0]))
    assert answer == {"id": 7, "verdict": "internal", "kind": "sandbox_failed", "correct": None}


def test_a_caller_may_wait_for_each_answer():
    with start() as process:
        for number in range(5):
            process.stdin.write(lines({**RUN, "id": number})[0])
            process.stdin.flush()
            assert select.select([process.stdout], [], [], 300)[0], "no answer while standard input is open"
            assert json.loads(process.stdout.readline())["id"] == number
        process.stdin.close()
        assert process.wait(300) == 0


@pytest.mark.slow
def test_no_more_is_read_than_is_in_hand():
    """Back-pressure: a caller that writes without end is made to wait."""
    with start("--workers", "1", "--once") as process:
        os.set_blocking(process.stdin.fileno(), False)
        waits = {"role": "program", "program": "import time\ndef f(x): time.sleep(60)", "inputs": "1"}
        line = lines({**waits, "note": "x" * 100_000})[0]
        written, deadline = 0, time.monotonic() + 3
        while time.monotonic() < deadline:
            try:
                written += os.write(process.stdin.fileno(), line[written % len(line) :])
            except BlockingIOError:
                time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    assert written < 20 * len(line)


@pytest.mark.slow
@pytest.mark.parametrize(("ending", "busy"), [("interrupt", False), ("interrupt", True), ("reader gone", False)])
def test_it_ends_at_once_without_a_traceback_and_leaves_no_process(ending, busy):
    process = start("--wall-seconds", "60")
    process.stdin.write(lines(RUN)[0])
    process.stdin.flush()
    process.stdout.readline()
    below = descendants(process.pid)
    waits = {"role": "program", "program": SLEEP, "inputs": "50"}
    process.stdin.write(b"".join(lines(RUN, *[waits] * (20 if busy else 0))))
    process.stdin.flush()
    time.sleep(0.5)
    if ending == "interrupt":
        process.send_signal(signal.SIGINT)
    else:
        process.stdout.close()
        process.stdin.write(lines(RUN)[0])
        process.stdin.flush()
    assert process.wait(45) == (130 if ending == "interrupt" else 1)
    assert b"Traceback" not in process.stderr.read()
    deadline = time.monotonic() + 45
    while alive(below) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert below and not alive(below)


def test_limits_and_equality_are_flags():
    spin = {"role": "program", "program": "def f(x):\n    while True: pass", "inputs": "1"}
    grow = {"role": "program", "program": "def f(x):\n    return len(bytearray(200 << 20))", "inputs": "1"}
    wait = {"role": "program", "program": SLEEP, "inputs": "3"}
    same = {"role": "answer", "program": "", "inputs": "", "answer": "True", "output": "1"}
    results = verify(
        lines(spin, grow, wait, same), "--cpu-seconds", "0.2", "--wall-seconds", "1", "--memory-mb", "128", "--equality", "strict"
    )
    assert [f"{result['verdict']} {result['kind']}" for result in results] == ["timeout cpu", "error memory", "timeout wall", "ok wrong"]


def test_once_sees_no_difference_between_processes_and_the_default_does():
    order = {"role": "program", "program": "FIRST = next(iter({'a%d' % n for n in range(99)}))\ndef f(x): return FIRST", "inputs": "1"}
    assert [verify(lines(order), *flags)[0]["verdict"] for flags in ([], ["--once"])] == ["rejected_nondeterministic", "ok"]


@pytest.mark.parametrize(("flag", "value"), [("workers", "0"), ("cpu-seconds", "0"), ("profile", "x"), ("domain", "none")])
def test_impossible_flags_are_errors(flag, value):
    with pytest.raises(ConfigError, match=flag.replace("-", "_").removesuffix("s")):
        main([f"--{flag}", value])
