"""Run many mixed programs, one in ten of them hostile or broken, in one pool; measure its memory and what they leave behind."""

import contextlib
import ctypes
import gc
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.measuring import descendants, noise
from benchmarks.sandbox.speed import is_value

from populora.core.config import TasksConfig
from populora.sandbox.pool import SandboxPool
from populora.sandbox.protocol import Job, Limits

LIMITS = Limits(cpu_seconds=0.2, memory_mb=256)
CHUNK = 1000
LEFT_FILE = "left_by_a_program_of_the_sandbox_benchmark"
FORGED = b'[{"kind": "ok", "values": []}]'
WORDS = """
from collections import Counter
def f(x):
    return Counter(str(@ * k % 13) for k in range(40)).most_common(3 * x)"""
RECURSION = """
def f(x):
    def g(n):
        return n if n < 2 else g(n - 1) + g(n - 2)
    return [g(9 + x), @]"""
CLASS = """
class Account:
    def __init__(self, sum):
        self.sum = sum
    def add(self, more):
        self.sum += more
def f(x):
    account = Account(@)
    for k in range(9):
        account.add(k * x)
    return {'sum': account.sum}"""
WRITES = f"""
def f(x):
    for place in ('', '/tmp/', '/var/tmp/', '/dev/shm/'):
        try:
            open(place + '{LEFT_FILE}', 'w').write('@')
        except OSError:
            x += 1
    return x, @"""
SORTS = {  # name: (count in two hundred, program; @ stands for the program's number)
    "trivial": (123, "def f(x):\n    return x + @"),
    "sorting": (15, "def f(x):\n    return sorted((k * 7919 + @) % 101 for k in range(50 * x))"),
    "words": (14, WORDS),
    "recursion": (14, RECURSION),
    "class": (14, CLASS),
    "raises": (4, "def f(x):\n    return [1, 2, 3][x + @ + 3]"),
    "allocates": (2, "def f(x):\n    return len(bytearray(10 ** 10 + @))"),
    "loops": (1, "def f(x):\n    while True:\n        x += @"),
    "exits": (2, "def f(x):\n    raise SystemExit(@)"),
    "exits silently": (1, "import os\ndef f(x):\n    os._exit(@ % 2)"),
    "forges": (2, f"import os\ndef f(x):\n    os.write(3, {len(FORGED).to_bytes(4, 'big') + FORGED!r})\n    os._exit(@ * 0)"),
    "floods output": (1, "def f(x):\n    for k in range(2000):\n        print('x' * 1000)\n    return @"),
    "floods the channel": (1, "import os\ndef f(x):\n    for k in range(2000):\n        os.write(3, bytes(65536))\n    return @"),
    "no syntax": (2, "def f(x) return x + @"),
    "banned import": (2, "import random\ndef f(x):\n    return random.random() + @"),
    "forks": (1, "import os\ndef f(x):\n    return os.fork() + @"),
    "writes files": (1, WRITES),
}
TWO_HUNDRED = [sort for sort, (share, _) in SORTS.items() for _ in range(share)]


def measure_endurance(count: int) -> dict[str, Any]:
    """Run ``count`` programs, completely checked, in chunks in one pool with two workers."""
    adopt_orphans()
    verdicts: dict[str, Counter[str]] = {sort: Counter() for sort in SORTS}
    with fresh_folders() as folders:
        opened = descriptors([os.getpid()])
        with SandboxPool(LIMITS, workers=2) as pool:
            tier = pool.tier
            samples, disturbed = noise(lambda: [state(0), *run_mixed(pool, count, verdicts)])
            direct = {pid for pid, (phase, parent, *_) in descendants().items() if int(parent) == os.getpid() and phase != "Z"}
        time.sleep(1)
        left = {
            "processes_after_a_second": remaining(direct),
            "descriptors_of_the_caller": descriptors([os.getpid()]) - opened,
            "files": sum(len(files) for folder in folders for _, _, files in os.walk(folder)) + marked_files(),
        }
    return {
        "tier": tier,
        "programs": count,
        "limits": {"cpu_seconds": LIMITS.cpu_seconds, "memory_mb": LIMITS.memory_mb},
        "verdicts": verdicts,
        "samples": [samples[0], *samples[1:2], samples[-1]],  # at the start, after the first chunk, at the end
        "left_after_closing": left,
        "noise": disturbed,
    }


def run_mixed(pool: SandboxPool, count: int, verdicts: dict[str, Counter[str]]) -> Iterator[dict[str, Any]]:
    """Yield the state after every chunk, and count the verdicts on each sort of program."""
    for start in range(0, count, CHUNK):
        numbers = range(start, min(count, start + CHUNK))
        programs = [mixed(number) for number in numbers]
        jobs = [Job("run", text, ("1",), rules=TasksConfig().banned_imports) for _, text in programs]
        for number, (sort, _), verdict in zip(numbers, programs, pool.run(jobs, twice=True), strict=True):
            wrong = sort == "trivial" and verdict.ok and not is_value(verdict, number + 1)
            verdicts[sort]["ok, wrong value" if wrong else f"{verdict.kind} {verdict.reason}".strip()] += 1
        del jobs, programs
        yield state(numbers.stop)


def mixed(number: int) -> tuple[str, str]:
    """Return sort and text of a program; two hundred in a row hold every sort in its share."""
    sort = TWO_HUNDRED[number * 77 % 200]
    return sort, SORTS[sort][1].replace("@", str(number))


def state(programs: int) -> dict[str, Any]:
    """Return memory and descriptors of this process, and of the pool's processes together, after ``programs`` programs."""
    gc.collect()
    below = [pid for pid, fields in descendants().items() if fields[0] != "Z"]
    return {
        "programs": programs,
        "processes": len(below),
        "pool_private_mb": private_mb(below),
        "pool_descriptors": descriptors(below),
    }


def adopt_orphans() -> None:
    """Make this process the parent of every process below it whose own parent ends, so that none is overlooked."""
    set_child_subreaper = 36
    if ctypes.CDLL(None).prctl(set_child_subreaper, 1):
        raise SystemExit("the kernel does not let this process adopt orphans")


def remaining(direct: set[int]) -> int:
    """Count processes below this one. Dead ones count only if the pool started them: it should have waited for them."""
    return sum(fields[0] != "Z" or pid in direct for pid, fields in descendants().items())


@contextlib.contextmanager
def fresh_folders() -> Iterator[tuple[Path, Path]]:
    """Give the block an empty working folder and an empty folder for temporary files."""
    kept = os.environ.get("TMPDIR")
    with tempfile.TemporaryDirectory() as working, tempfile.TemporaryDirectory() as temporary, contextlib.chdir(working):
        os.environ["TMPDIR"], tempfile.tempdir = temporary, None
        try:
            yield Path(working), Path(temporary)
        finally:
            tempfile.tempdir = None
            del os.environ["TMPDIR"]
            os.environ |= {"TMPDIR": kept} if kept else {}


def marked_files() -> int:
    return sum(Path(folder, LEFT_FILE).exists() for folder in ("/", "/tmp", "/var/tmp", "/dev/shm"))  # noqa: S108 - where programs tried


def private_mb(pids: Iterable[int]) -> float:
    """Return the private memory of these processes together."""
    lines = [line for pid in pids for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()]
    return round(sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024, 3)


def descriptors(pids: Iterable[int]) -> int:
    """Count the open files of these processes together."""
    return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids)
