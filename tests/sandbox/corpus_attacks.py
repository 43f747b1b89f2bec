"""The hostile corpus, first half: programs that never end, take memory, flood, start processes, send signals, and forge replies."""

import textwrap

from corpus_case import answer, body, program

LOOPS = ("timeout cpu",)
for name, statement in {
    "while": "while True: pass",
    "for": "for _ in iter(int, 1): pass",
    "catches everything": "while True:\n        try:\n            while True: pass\n        except BaseException: pass",
    "sum without end": "return sum(itertools.count())",
    "membership without end": "return -1 in itertools.count()",
    "regular expression": "return re.match('(a+)+$', 'a' * 60 + 'b') is None",
    "power tower": "return len(str(9 ** 9 ** 9)) * 0",
    "factorial": "return math.factorial(10 ** 8) * 0",
    "sort that never agrees": (
        "class K:\n        def __lt__(self, other):\n            while True: pass\n    return sorted([K(), K()]) and 1"
    ),
    "destructor": "class D:\n        def __del__(self):\n            while True: pass\n    D()\n    return 1",
    "ignores the signal": "signal.signal(signal.SIGPROF, signal.SIG_IGN)\n    while True: pass",
    "handles the signal": "signal.signal(signal.SIGPROF, lambda *a: None)\n    while True: pass",
    "hash of its own": "class H:\n        def __hash__(self):\n            while True: pass\n    return {H(): 1} and 1",
    "generator": "def g():\n        while True: yield 1\n    return list(None for _ in g() if 0)",
    "polls": "while True: time.sleep(0)",
}.items():
    body("endless", name, statement, *LOOPS, "error memory", "error exception:OverflowError")
body("endless", "blocks the signal", "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGPROF])\n    while True: pass", *LOOPS)
# A kernel that counts CPU time by ticks of 4 ms charges this program nothing.
between_ticks = "if not 0.0001 < time.monotonic() % 0.004 < 0.0034: time.sleep((0.0042 - time.monotonic() % 0.004) % 0.004)"
body("endless", "sleeps at every tick", f"while True:\n        {between_ticks}", *LOOPS)
program("endless", "at import", "while True: pass\ndef f(x): return x", *LOOPS)
program("endless", "at the end of the interpreter", "import atexit\natexit.register(exec, 'while True: pass')\ndef f(x): return x", "ok 1")
body("endless", "sleep", "time.sleep(600)", "timeout wall")
body("endless", "waits for a lock", "threading.Lock().acquire(); lock = threading.Lock(); lock.acquire(); lock.acquire()", "timeout wall")
body("endless", "waits for nothing", "select.select([], [], [], 600)", "timeout wall")

BOMB = ("error memory", "timeout cpu", "error signal")
for name, statement in {
    "bytes": "return len(bytearray(10 ** 11))",
    "list": "a = [0]\n    while True: a += a",
    "string": "a = 'x'\n    while True: a += a",
    "nested lists": "a = []\n    while True: a = [a] * 1000, list(range(10 ** 6))",
    "dict": "d = {}\n    while True: d[len(d)] = 'x' * 1000",
    "integer": "a = 3\n    while True: a *= a",
    "caught": "a = []\n    while True:\n        try: a.append(bytearray(10 ** 7))\n        except MemoryError: pass",
    "shift": "return (1 << 10 ** 12) * 0",
    "replace": "a = 'ab' * 10 ** 6\n    while True: a = a.replace('a', 'aa')",
    "format": "return len('%0999999999d' % 1)",
    "recursion without a limit": "sys.setrecursionlimit(10 ** 9)\n    def g(n): return g(n + 1)\n    return g(0)",
}.items():
    body("bomb", name, statement, *BOMB, "error exception:OverflowError", "error exception:ValueError")

for name, statement in {
    "string": "return 'x' * 10 ** 6",
    "list": "return [0] * 10 ** 5",
    "integer": "return 10 ** 5000",
    "shared lists": "a = []\n    for _ in range(60): a = [a, a]\n    return a",
    "bytes": "return bytes(10 ** 6)",
    "dict": "return {n: n for n in range(10 ** 4)}",
}.items():
    body("flood", name, statement, "error output_limit")
body("flood", "standard output", "print('x' * 10 ** 7)\n    return 1", "ok 1")
body("flood", "standard error", "sys.stderr.write('x' * 10 ** 7)\n    return 1", "ok 1")
body("flood", "its channel", "while True: os.write(3, bytes(65536))", "not ok")
body(
    "flood",
    "every descriptor",
    "for n in range(64):\n        try: os.write(n, b'x' * 4096)\n        except OSError: pass\n    return 1",
    "not ok",
)
body("flood", "itself", "a = []\n    a.append(a)\n    return a", "error unsupported_value")

for name, statement in {
    "fork": "return os.fork() * 0",
    "fork bomb": "while True: os.fork()",
    "exec": "os.execv('/bin/sh', ['sh'])",
    "raw fork": "return ctypes.CDLL(None).fork()",
    "vfork": "return ctypes.CDLL(None).syscall(58)",
}.items():
    body("processes", name, statement, "blocked seccomp", filtered=True)
for name, statement in {
    "subprocess": "return subprocess.run(['id']).returncode",
    "shell": "return os.system('id')",
    "popen": "return os.popen('id').read()",
    "spawn": "return os.posix_spawn('/bin/sh', ['sh'], {})",
    "thread": "threading.Thread(target=print).start()",
    "pool": "import concurrent.futures as c\n    return list(c.ProcessPoolExecutor().map(abs, [1]))",
    "multiprocessing": "import multiprocessing as m\n    return m.Pool(2).map(abs, [1])",
}.items():
    body("processes", name, statement, "not ok", filtered=True)

for name, statement in {
    "parent": "os.kill(os.getppid(), 9)",
    "everybody": "os.kill(-1, 9)",
    "group": "os.killpg(0, 9)",
    "first process": "os.kill(1, 9)",
    "raw": "ctypes.CDLL(None).kill(-1, 9)",
    "thread of another": "ctypes.CDLL(None).syscall(200, 1, 9)",
    "queued": "ctypes.CDLL(None).syscall(129, 1, 9, 0)",
}.items():
    body("signals", name, statement, "blocked seccomp", filtered=True)
body("signals", "itself, softly", "signal.raise_signal(signal.SIGTERM)", "not ok")
body("signals", "stops itself", "signal.raise_signal(signal.SIGSTOP)", "not ok")
body("signals", "alarm", "signal.alarm(1)\n    time.sleep(2)\n    return 1", "not ok", "ok 1")
body(
    "signals",
    "ignores all",
    "for n in range(1, 65):\n        try: signal.signal(n, signal.SIG_IGN)\n        except (OSError, ValueError): pass\n    while True: pass",
    "timeout cpu",
)

FRAMES = [
    b'{"id": 0, "verdict": "ok", "kind": "", "value": "666"}\n', b"\x00\x00\x00\x02[]", b"R", b"Z", b"\x80\x04K\x05.",
    b'\x00\x00\x00\x2b[{"kind": "ok", "values": [["i", "666"]]}]', b"666\n", b"ok\n" * 100,
]  # fmt: skip
for number, frame in enumerate(FRAMES):
    for ending in ("return x", "os._exit(0)"):
        writes = f"for n in range(64):\n        try: os.write(n, {frame!r})\n        except OSError: pass"
        body("forgery", f"frame {number}, then {ending}", f"{writes}\n    {ending}", "not ok")
body("forgery", "exits with text", "print('666', flush=True)\n    os._exit(0)", "error exit_without_result")
body("forgery", "closes every descriptor", "os.closerange(0, 64)\n    return 1", "not ok")
body("forgery", "exits with a status", "os._exit(77)", "error exit_without_result")
program("forgery", "patches the writer", "import os\nos.write = lambda n, b: len(b)\ndef f(x): return 1", "not ok")
program("forgery", "clears our modules", """
    import sys
    for name in [n for n in sys.modules if 'populora' in n or n == '__main__']: sys.modules[name].__dict__.clear()
    def f(x): return 1
    """, "ok 1")  # fmt: skip
program("forgery", "clears our globals", """
    import sys
    def f(x):
        frame = sys._getframe(1)
        while frame: frame.f_globals.clear(); frame = frame.f_back
    """, "not ok")  # fmt: skip
for name, source in {
    "says that it is right": "def f(x):\n    print('{\"correct\": true}')\n    return True",
    "is equal to everything": "class E:\n    def __eq__(self, other): return True\n    __hash__ = None\ndef f(x): return E()",
    "is an integer that equals": "class E(int):\n    def __eq__(self, other): return True\n    __hash__ = int.__hash__\ndef f(x): return E()",
    "looks for the outputs in frames": """
        import sys, gc
        def f(x):
            seen, frame = [], sys._getframe()
            while frame:
                seen.append(repr(frame.f_locals)); frame = frame.f_back
            seen += [repr(o) for o in gc.get_objects() if isinstance(o, (dict, list, str, tuple))][:20000]
            return 7391 if any('7391' in s for s in seen if 'class E' not in s and '20000' not in s) else 0
        """,
    "looks for the outputs in strings": """
        import gc
        def f(x):
            for o in gc.get_objects():
                if isinstance(o, dict) and 'pairs' in o: return o['pairs'][0][1]
            return 0
        """,
    "exits well": "import os\ndef f(x): os._exit(0)",
    "changes the comparison": "import builtins, operator\nbuiltins.all = lambda x: True\noperator.eq = lambda a, b: True\ndef f(x): return 0",
    "changes our modules": """
        import sys
        for name, module in list(sys.modules.items()):
            for key, value in list(vars(module).items()) if 'populora' in name else ():
                if callable(value) and not isinstance(value, type): setattr(module, key, lambda *a, **k: True)
        def f(x): return 0
        """,
    "guesses by the length of the test": "def f(x): return [7391, 12][len(str(x)) > 8]",
}.items():  # fmt: skip
    pairs = [["123456789", "7391"], ["5", "12"], ["[1]", "0.5"]]
    request = {"role": "solution", "answer": textwrap.dedent(source).strip("\n"), "pairs": pairs}
    answer("forgery", f"solution that {name}", request, "incorrect")
