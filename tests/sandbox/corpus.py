"""The hostile corpus, second half (importing it adds both halves to ``CASES`` of `corpus_case`): what a program can reach, and values, answers and depths."""

from collections.abc import Iterable

import corpus_attacks  # noqa: F401 - it adds its cases first
from corpus_case import ADD, CANARY_FILE, answer, body, program

NO_FILE = ("error exception:PermissionError", "error exception:FileNotFoundError", "error exception:OSError")
for name, statement in {
    "reads": "return open('/etc/passwd').read(9)",
    "reads the canary": f"return open({CANARY_FILE!r}).read()",
    "reads with the system's call": f"return os.read(os.open({CANARY_FILE!r}, os.O_RDONLY), 99)",
    "lists": "return os.listdir('/')",
    "lists where it is": "return os.listdir('.')",
    "writes": "open('/tmp/populora_was_here', 'w').write('x')",
    "appends to the library": "open(os.__file__, 'a').write('x')",
    "unlinks": f"os.unlink({CANARY_FILE!r})",
    "renames": f"os.rename({CANARY_FILE!r}, '/tmp/populora_was_here')",
    "makes a folder": "os.mkdir('/tmp/populora_was_here')",
    "links": f"os.symlink({CANARY_FILE!r}, '/tmp/populora_was_here')",
    "shared memory": "return os.memfd_create('x') and open('/dev/shm/populora_was_here', 'w').write('x')",
    "device": "return open('/dev/urandom', 'rb').read(1)",
    "process memory": "return open('/proc/self/mem', 'rb').read(1)",
    "process environment": "return open('/proc/self/environ', 'rb').read()",
    "parent's command": "return open('/proc/1/cmdline', 'rb').read()",
    "maps": "return open('/proc/self/maps').read(9)",
}.items():
    body("files", name, statement, *NO_FILE, "error exception:AttributeError", filtered=True)
body("files", "the C library opens", f"return ctypes.CDLL(None).open({CANARY_FILE.encode()!r}, 0)", "ok -1", filtered=True)
program(
    "files", "its own source", "import sys\ndef f(x): return open(sys._getframe(1).f_code.co_filename).read(9)", "not ok", filtered=True
)
program("files", "a module of ours", "import inspect, sys\ndef f(x): return inspect.getsource(sys._getframe(1))", "not ok", filtered=True)

body("environment", "variables", "return dict(os.environ)", "ok {}")
body("environment", "canary", "return os.environ.get('POPULORA_CANARY', 'none')", "ok 'none'")
body(
    "environment", "the C library's", "return ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), 'environ')[0]", "ok None", "not ok"
)
body(
    "environment",
    "C getenv",
    "g = ctypes.CDLL(None).getenv\n    g.restype = ctypes.c_char_p\n    return g(b'POPULORA_CANARY')",
    "ok None",
    "not ok",
)
body("environment", "home", "return os.path.expanduser('~')", "ok '~'", "not ok", filtered=True)
body("environment", "user", "import getpass\n    return getpass.getuser()", "not ok", filtered=True)
body("environment", "machine's name", "return os.uname()[1]", "ok 'sandbox'")
body("environment", "host name", "return socket.gethostname()", "ok 'sandbox'", "not ok", filtered=True)
body("environment", "process numbers", "return os.getpid(), os.getppid()", "ok (-1, -1)", filtered=True)

for name, statement in {
    "socket": "return socket.socket().fileno()",
    "unix socket": "return socket.socket(socket.AF_UNIX).fileno()",
    "connect": "socket.create_connection(('127.0.0.1', 22))",
    "bind": "socket.socket().bind(('', 0))",
    "raw": "return ctypes.CDLL(None).socket(2, 1, 0)",
}.items():
    body("network", name, statement, "blocked seccomp", filtered=True)
body("network", "names", "return socket.gethostbyname('localhost')", "not ok", filtered=True)
body("network", "pair", "return socket.socketpair()[0].fileno()", "not ok", filtered=True)
body("network", "http", "import urllib.request\n    return urllib.request.urlopen('http://127.0.0.1:1').read()", "not ok", filtered=True)
body("network", "interfaces", "return socket.if_nameindex()", "not ok", filtered=True)

for number, name in {
    101: "ptrace", 310: "process_vm_readv", 311: "process_vm_writev", 434: "pidfd_open", 425: "io_uring_setup", 321: "bpf", 272: "unshare",
    308: "setns", 165: "mount", 161: "chroot", 155: "pivot_root", 248: "add_key", 250: "keyctl", 298: "perf_event_open", 323: "userfaultfd",
    169: "reboot", 246: "kexec_load", 175: "init_module", 304: "open_by_handle_at", 59: "execve",
}.items():  # fmt: skip
    body("kernel", name, f"return ctypes.CDLL(None).syscall({number}, 0, 0, 0, 0, 0)", "blocked seccomp", filtered=True)
for number, name in {135: "personality", 319: "memfd_create", 160: "setrlimit", 157: "prctl", 317: "seccomp", 126: "capset", 105: "setuid",
                     41 + 512: "x32-like", 302: "prlimit64", 436: "close_range", 56: "clone"}.items():  # fmt: skip
    body("kernel", name, f"return ctypes.CDLL(None).syscall({number}, 0, 0, 0, 0, 0) >= 0", "ok False", "blocked seccomp", filtered=True)
body("kernel", "raises its limits", "import resource as r\n    r.setrlimit(r.RLIMIT_CPU, (99, 99))", "not ok")
body("kernel", "null pointer", "return ctypes.string_at(0)", "error signal")
body("kernel", "writes over the interpreter", "ctypes.memset(id(None), 255, 16)\n    return None", "not ok")

for name, source in {
    "our package": "import populora\ndef f(x): return 1",
    "a third package": "import torch\ndef f(x): return 1",
    "numpy in training": "import numpy\ndef f(x): return 1",
    "search path": "import sys\nsys.path.insert(0, '/tmp')\nimport populora_was_here\ndef f(x): return 1",
    "path of our package": "import sys\nsys.modules['populora'].__path__ = ['/work', '/usr/lib', '.']\nimport populora.training.loop\ndef f(x): return 1",
    "zip": "import zipimport\nzipimport.zipimporter('/tmp/x.zip')\ndef f(x): return 1",
    "pip": "import pip\ndef f(x): return 1",
    "site": "import site\nsite.main()\nimport numpy\ndef f(x): return 1",
    "library by path": f"import ctypes\nctypes.CDLL({CANARY_FILE!r})\ndef f(x): return 1",
    "spec by file": f"import importlib.util as u\ns = u.spec_from_file_location('c', {CANARY_FILE!r})\ndef f(x): return s.loader.get_data({CANARY_FILE!r})",
    "relative": "from . import child\ndef f(x): return 1",
}.items():  # fmt: skip
    program("imports", name, source, "not ok")
program("imports", "by name", "m = __import__('math')\ndef f(x): return m.gcd(12, 18)", "ok 6")
program("imports", "from a string", "exec('def g(x): return x * 2')\ndef f(x): return g(x)", "ok 2")

for name, (source, *allowed) in {
    "len": ("import builtins\nbuiltins.len = lambda x: 0\ndef f(x): return [1] * 10 ** 6", "not ok"),
    "type": ("import builtins\nbuiltins.type = lambda x: int\nclass A: pass\ndef f(x): return A()", "not ok"),
    "isinstance": ("import builtins\nbuiltins.isinstance = lambda *a: True\nclass A: pass\ndef f(x): return A()", "not ok"),
    "repr": ("import builtins\nbuiltins.repr = lambda x: '666'\ndef f(x): return {'a': 1.0}", "ok {'a': 1.0}", "not ok"),
    "str": ("import builtins\nbuiltins.str = lambda x: '666'\ndef f(x): return 5", "ok 5", "not ok"),
    "json": ("import json\njson.dumps = lambda *a, **k: '[]'\ndef f(x): return 5", "ok 5", "not ok"),
    "exit": ("import os\nos._exit = lambda c: None\ndef f(x): raise SystemExit", "error exception:SystemExit"),
    "standard output": ("import sys\nsys.stdout = None\ndef f(x): return 5", "ok 5"),
    "compile": ("import builtins\nbuiltins.compile = builtins.exec = None\ndef f(x): return 5", "ok 5"),
    "all": ("import builtins\nfor n in dir(builtins):\n    if n not in ('range',): setattr(builtins, n, None)\ndef f(x): return 5", "ok 5", "not ok"),
    "profile": ("import sys\nsys.setprofile(lambda *a: 1 / 0)\ndef f(x): return 5", "not ok"),
    "trace": ("import sys\nsys.settrace(lambda *a: 1 / 0)\ndef f(x): return 5", "not ok"),
    "recursion": ("import sys\nsys.setrecursionlimit(20)\ndef f(x): return [[[[[[[[[[[[[1]]]]]]]]]]]]]", "not ok", "ok [[[[[[[[[[[[[1]]]]]]]]]]]]]"),
}.items():  # fmt: skip
    program("builtins", name, source, *allowed)

LEAKS = {  # what one program leaves behind, what the next one sees
    "builtins": ("import builtins\nbuiltins.leak = 1\nbuiltins.sorted = lambda x: 7\ndef f(x): return sorted([])",
                 "import builtins\ndef f(x): return sorted([2, 1]), hasattr(builtins, 'leak')", "([1, 2], False)"),
    "math": ("import math\nmath.pi = 3\ndef f(x): return math.pi", "import math\ndef f(x): return math.pi > 3", "True"),
    "modules": ("import sys, types\nsys.modules['leak'] = types.ModuleType('leak')\ndef f(x): return 1",
                "import sys\ndef f(x): return 'leak' in sys.modules", "False"),
    "limits": ("import sys\nsys.setrecursionlimit(77)\ndef f(x): return 1", "import sys\ndef f(x): return sys.getrecursionlimit() > 500", "True"),
    "globals": ("kept = 1\ndef f(x): return 1", "def f(x): return 'kept' in globals()", "False"),
    "environment": ("import os\nos.environ['LEAK'] = '1'\ndef f(x): return 1", "import os\ndef f(x): return 'LEAK' in os.environ", "False"),
    "random": ("import random\nrandom.seed(1)\ndef f(x): return random.Random(2).random() > 0",
               "import random\ndef f(x): return random.Random(5).randint(1, 6)", "5"),
    "decimal": ("import decimal\ndecimal.getcontext().prec = 2\ndef f(x): return 1",
                "import decimal\ndef f(x): return str(decimal.Decimal(1) / 3)", "'0.3333333333333333333333333333'"),
}  # fmt: skip
for name, (first, second, value) in LEAKS.items():
    program("leaks", f"{name}, leaving", first, "ok 1", "ok 7", "ok 3", "ok True")
    program("leaks", f"{name}, looking", second, f"ok {value}")

for name, source in {
    "equality": "class S:\n    __eq__ = lambda a, b: True\n    __hash__ = None\ndef f(x): return S()",
    "integer": "class S(int):\n    __repr__ = lambda s: '5'\ndef f(x): return S(6)",
    "string": "class S(str):\n    __repr__ = lambda s: '5'\ndef f(x): return [S('a')]",
    "list": "class S(list):\n    __iter__ = lambda s: iter([5])\ndef f(x): return S()",
    "dict": "class S(dict):\n    items = lambda s: [(1, 1)]\ndef f(x): return {'a': S()}",
    "key": "class S(str): pass\ndef f(x): return {S('a'): 1}",
    "pickle": "class S:\n    __reduce__ = lambda s: (print, ('gotcha',))\ndef f(x): return [S()]",
    "class": "class S:\n    __class__ = int\ndef f(x): return S()",
    "metaclass": "class M(type):\n    __eq__ = lambda a, b: True\n    __hash__ = lambda a: hash(int)\nclass S(metaclass=M): pass\ndef f(x): return S()",
    "attributes": "class S:\n    def __getattr__(self, name): return lambda *a: 5\ndef f(x): return S()",
    "tuple": "from collections import namedtuple\ndef f(x): return namedtuple('P', 'a')(1)",
    "subclass of a counter": "from collections import Counter\nclass C(Counter): pass\ndef f(x): return C('aab')",
    "enumeration": "from enum import IntEnum\nclass E(IntEnum):\n    A = 1\ndef f(x): return E.A",
    "not a number": "def f(x): return [float('nan')]",
    "generator": "def f(x): return (i for i in [1])",
    "function": "def f(x): return f",
    "type": "def f(x): return int",
    "ellipsis": "def f(x): return ...",
    "range": "def f(x): return range(3)",
    "array": "def f(x): return bytearray(b'a')",
    "fraction": "from fractions import Fraction\ndef f(x): return Fraction(1, 3)",
    "not implemented": "def f(x): return NotImplemented",
}.items():
    program("objects", name, source, "error unsupported_value")
program("objects", "counter", "from collections import Counter\ndef f(x): return Counter('aab')", "ok {'a': 2, 'b': 1}")

for name, statement in {
    "order of a set": "return list({'alpha', 'beta', 'gamma', 'delta', 'epsilon', 'zeta'})",
    "walk over a set": "for word in {'in', 'out'}: return word",
    "comprehension over a set": "return [word for word in {'yes', 'no'}]",
    "first bit": "return os.urandom(1)[0] & 1",
    "coin": "return random.random() < 0.5",
    "tenth of a second": "return int(time.time() * 10) % 10",
    "morning": "return time.localtime().tm_hour >= 12",
    "two words": "return list({'alpha', 'omega'})",
    "three letters": "return ''.join({'a', 'b', 'c'})",
    "a letter of three": "return {'x', 'y', 'z'}.pop()",
    "set of a string": "return ''.join(set('ab'))",
    "keys in common": "return list({'a': 1, 'b': 2}.keys() & {'b': 1, 'a': 2}.keys())",
    "frozen": "return [w for w in frozenset(['in', 'out'])]",
    "parity of a hash": "return hash('word') % 2",
    "sort by hash": "return sorted(['a', 'b'], key=hash)",
    "set comprehension": "return next(iter({c for c in 'no'}))",
    "first of a set": "return next(iter({'alpha', 'beta', 'gamma', 'delta', 'epsilon', 'zeta', 'eta', 'theta'}))",
    "text of a set": "return str({'alpha', 'beta', 'gamma', 'delta', 'epsilon', 'zeta'})",
    "dict from a set": "return list(dict.fromkeys({'alpha', 'beta', 'gamma', 'delta', 'epsilon', 'zeta'}))",
    "hash": "return hash('text')",
    "small hash": "return hash('text') % 1000003",
    "address": "return id([])",
    "low bits": "return id(object()) // 16 % 256",
    "representation": "return repr(object())",
    "random": "return random.random()",
    "choice": "return random.choice(range(10 ** 6))",
    "seeded by time": "return random.Random(time.time()).random()",
    "entropy": "return os.urandom(4)",
    "identifier": "return str(uuid.uuid4())",
    "secret": "import secrets\n    return secrets.token_hex(4)",
    "time": "return time.time()",
    "hours": "return int(time.time() // 3600)",
    "year": "return time.localtime().tm_year",
    "year of a date": "return datetime.date.today().year",
    "hour": "return datetime.datetime.now().hour",
    "weekday": "return datetime.datetime.now().weekday()",
    "universal time": "return datetime.datetime.now(datetime.timezone.utc).month",
    "text of a time": "return time.strftime('%Y %B')",
    "time as text": "return time.ctime()[:3]",
    "uptime": "return int(time.monotonic() // 10 ** 5)",
    "performance counter": "return time.perf_counter_ns()",
    "temporary name": "import tempfile\n    return next(tempfile._get_candidate_names())",
    "thread": "return threading.get_ident()",
}.items():
    body("chance", name, statement, "rejected_nondeterministic calls_differ", "rejected_nondeterministic processes_differ")
program(
    "chance", "a set comes in", "def f(words): return list(words)", "rejected_nondeterministic processes_differ", inputs="{'in', 'out'}"
)
for statement in ("os.getloadavg()", "os.times()", "os.sysconf('SC_PHYS_PAGES') * 0"):
    body("environment", statement, f"return {statement}", "not ok", "ok 0", filtered=True)
body("environment", "command line", "return sys.argv, sys.orig_argv", "ok ([''], [''])")
for name, source in {
    "counter": "n = 0\ndef f(x):\n    global n\n    n += 1\n    return n",
    "default argument": "def f(x, seen=[]):\n    seen.append(x)\n    return len(seen)",
    "drawn at import": "import random\nR = random.random()\ndef f(x): return R",
    "hash at import": "H = hash('a') % 7919\ndef f(x): return H",
    "fails by chance": "first = next(iter({'a%d' % i for i in range(99)}))\ndef f(x):\n    assert first == 'a7'\n    return 1",
    "coin at import": "import random\nR = random.random() < 0.5\ndef f(x): return R",
    "bit at import": "import os\nB = os.urandom(1)[0] & 1\ndef f(x): return B",
    "iterator": "it = iter([1, 2, 3])\ndef f(x): return next(it)",
}.items():
    program("chance", name, source, "rejected_nondeterministic calls_differ", "rejected_nondeterministic processes_differ",
            *(["error exception:AssertionError"] if name == "fails by chance" else []))  # fmt: skip

I_5 = {"role": "input", "program": "def f(x):\n    return x % 7", "output": "5"}
O_26 = {"role": "answer", "program": "def f(x):\n    return x + 1", "inputs": "25", "output": "26"}
EXPRESSIONS = [
    "f(25)", "25 + 1", "0) or (26", "0) or print(True", "x", "__import__('os').getpid()", "(lambda: 26)()", "[26][0]", "26 if True else 0",
    "f'26'", "(y := 26)", "*[26]", "**{'x': 26}", "x=26", "26; 26", "26\n26", "eval('26')", "int('26')", "setattr(f, '__code__', 0) or 26",
    "type('X', (), {'__eq__': lambda s, o: True})()", "26 .__class__(26)", "[i for i in (26,)][0]", "...", "26 # )\n) or (26", "not 0",
    "26 and 26", "~-27", "--26", "2_6j", "open('/etc/passwd')", "print(26)", "26)(", "((26", "'26'", "b'26'", "[26]", "(26,)", "{26}", "26.5",
    "", " ", "None", "nan", "inf", "\x0026", "２６ + 0", "0x1A + 0", "lambda: 26", "yield", "await 26", "globals()", "().__class__",
]  # fmt: skip
for text in EXPRESSIONS:
    answer("answers", f"output {text!r}", {**O_26, "answer": text}, "incorrect")
for text in [*EXPRESSIONS, "4", "'5'", "5) or (5", "7, 5", "5, x=1", "5) if 1 else (0", "*(5,)", "5 for x in [1]"]:
    answer("answers", f"input {text!r}", {**I_5, "answer": text}, "correct" if text in ("26", "25 # )") else "incorrect")
for text in ("26", " 26 ", "26.0", "+26", "0x1A", "2_6", "(26)", "26 # comment", "0b11010", "26\n", "\t26"):
    answer("answers", f"right output {text!r}", {**O_26, "answer": text}, "correct")
for text in ("5", "12", "-2", " 5 ", "5,", "(5)", "5.0", "5 # five", "+5", "0x5", "\n5\n", "40"):
    answer("answers", f"right input {text!r}", {**I_5, "answer": text}, "correct")
VALUES = [  # output, answer, whether they are equal in Python
    ("True", "1", True), ("1", "1.0", True), ("0.0", "-0.0", True), ("{'a': 1, 'b': 2}", "{'b': 2, 'a': 1}", True), ("{1, 2}", "{2, 1, 1}", True),
    ("'a'", '"a"', True), ("'''a'''", "'a'", True), ("[1, (2,)]", "[1, (2, )]", True), ("b'a'", "b'\\x61'", True), ("None", "None", True),
    ("(1+2j)", "1 + 2j", True), ("frozenset({1})", "{1}", True), ("set()", "set()", True), ("1e999", "1e1000", True), ("100", "1e2", True),
    ("[1, 2]", "(1, 2)", False), ("'1'", "1", False), ("None", "0", False), ("''", "None", False), ("{1}", "[1]", False), ("'a'", "b'a'", False),
    ("[]", "{}", False), ("{}", "set()", False), ("'a b'", "'a  b'", False), ("0.1", "0.10000000000000001", True), ("0.3", "0.30000000000000004", False),
    ("9007199254740993", "9007199254740992.0", False), ("'\\u00e9'", "'e\\u0301'", False), ("[[1], [2]]", "[[1], 2]", False),
]  # fmt: skip
for output, text, equal in VALUES:
    request = {"role": "answer", "program": "", "inputs": "", "output": output, "answer": text}
    answer("answers", f"{output} is {text}", request, "correct" if equal else "incorrect")

for name, text in {
    "minus": "-" * 60000 + "1", "brackets": "[" * 10000 + "]" * 10000, "open brackets": "(" * 60000, "digits": "9" * 5000,
    "braces": "{" * 500 + "}" * 500, "tuple": "(" * 90 + "1" + ",)" * 90, "string": "'" + "x" * 70000 + "'", "sum": "+".join(["1"] * 20000),
    "attributes": "a" + ".a" * 20000, "not": "not " * 20000 + "1", "dict": "{" + "1:" * 5000 + "1}",
}.items():  # fmt: skip
    answer("deep", f"output of {name}", {**O_26, "answer": text}, "incorrect")
    answer("deep", f"input of {name}", {**I_5, "answer": text}, "incorrect")
    program("deep", f"program of {name}", f"def f(x): return {text}", "not ok")
program("deep", "ten megabytes", "#" * 10_000_000, "error source_limit")
program("deep", "long line", "def f(x): return x" + " + 0" * 3000, "ok 1", "not ok")
program("deep", "many statements", "def f(x):\n" + "    x += 1\n" * 5000 + "    return x", "ok 5001")
program("deep", "many arguments", "def f(*a): return len(a)", "ok 5000", inputs=", ".join(["1"] * 5000))
program("deep", "deep value", "def f(x):\n    for _ in range(70): x = [x]\n    return x", "error unsupported_value")
program(
    "deep",
    "nested functions",
    "\n".join(" " * i + f"def f{i or ''}(x):" for i in range(40)) + "\n" + " " * 40 + "return 1",
    "not ok",
    "ok None",
)

for name, (source, *allowed) in {
    "surrogate": ("def f(x): return '\ud800'", "error syntax"),
    "escaped surrogate": ("def f(x): return '\\ud800'", "ok '\\ud800'"),
    "null byte": ("def f(x): return 1\0", "error syntax"),
    "right to left": ("def f(x): return '\u202eabc'", "ok '\\u202eabc'"),
    "homoglyph of f": ("def \u0192(x): return 1", "error no_entry_point"),
    "compatible f": ("def \uff46(x): return 1", "ok 1"),
    "identifiers": ("def f(变量): return 变量 + 1", "ok 2"),
    "byte order mark": ("\ufeffdef f(x): return 1", "ok 1", "error syntax"),
    "cookie": ("# -*- coding: utf-7 -*-\ndef f(x): return '+AGEAYgBj-'", "ok '+AGEAYgBj-'", "error syntax"),
    "form feed": ("\x0cdef f(x):\x0c\n    return 1", "ok 1"),
    "carriage returns": ("def f(x):\r\n    return 1\r\n", "ok 1"),
    "tabs and spaces": ("def f(x):\n\tif x:\n        return 1\n", "error syntax"),
    "far plane": ("def f(x): return '\U0001f600' * 2", "ok '\U0001f600\U0001f600'"),
    "normal forms": ("def f(x): return 'é' == 'e\u0301'", "ok False"),
    "escape": ("def f(x): return '\\d'", "ok '\\\\d'"),
    "name of a character": ("def f(x): return '\\N{SNOWMAN}'", "ok '☃'", "error syntax"),
    "smart quotes": ("def f(x): return \u201ca\u201d", "error syntax"),
    "zero width": ("def f(x): return 1\u200b", "error syntax"),
}.items():
    program("unicode", name, source, *allowed)

for name, (source, *allowed) in {
    "nothing": ("", "error no_entry_point"),
    "no f": ("def g(x): return x", "error no_entry_point"),
    "f is a number": ("f = 5", "error no_entry_point"),
    "f is deleted": ("def f(x): return 1\ndel f", "error no_entry_point"),
    "f inside": ("def g():\n    def f(x): return 1", "error no_entry_point"),
    "method": ("class A:\n    def f(self): return 1", "error no_entry_point"),
    "lambda": ("f = lambda x: x + 1", "ok 2"),
    "partial": ("from functools import partial\nf = partial(max, 5)", "ok 5"),
    "class": ("class f:\n    def __init__(self, x): pass", "error unsupported_value"),
    "asynchronous": ("async def f(x): return 1", "error unsupported_value"),
    "generator": ("def f(x): yield 1", "error unsupported_value"),
    "defined twice": ("def f(x): return 1\ndef f(x): return 2", "ok 2"),
    "no argument": ("def f(): return 1", "error exception:TypeError"),
    "syntax": ("def f(x) return x", "error syntax"),
    "return outside": ("return 1\ndef f(x): return 1", "error syntax"),
    "indentation": ("def f(x):\nreturn x", "error syntax"),
    "exit": ("import sys\ndef f(x): sys.exit(0)", "error exception:SystemExit"),
    "exit at import": ("raise SystemExit\ndef f(x): return 1", "error exception:SystemExit"),
    "interrupt": ("def f(x): raise KeyboardInterrupt", "error exception:KeyboardInterrupt"),
    "generator's exit": ("def f(x): raise GeneratorExit", "error exception:GeneratorExit"),
    "stop": ("def f(x): raise StopIteration(5)", "error exception:StopIteration"),
    "own base exception": (
        "class E(BaseException):\n    def __str__(self): raise self\ndef f(x): raise E",
        "error exception:BaseException",
    ),
    "hostile name": (
        "class M(type):\n    __name__ = property(lambda c: 1 / 0)\nclass E(Exception, metaclass=M): pass\ndef f(x): raise E",
        "not ok",
    ),
    "memory error": ("def f(x): raise MemoryError", "error memory"),
    "recursion": ("def f(x): return f(x)", "error exception:RecursionError"),
    "abort": ("import os\ndef f(x): os.abort()", "error signal"),
    "warning": ("import warnings\ndef f(x):\n    warnings.warn('w')\n    return 1", "ok 1"),
}.items():
    program("shapes", name, source, *allowed)

CONTROLS: Iterable[tuple[str, str, str]] = [
    (ADD, "41", "42"),
    ("from collections import Counter\ndef f(s): return sorted(Counter(s).items())", "'banana'", "[('a', 3), ('b', 1), ('n', 2)]"),
    ("import math, itertools\ndef f(n): return math.comb(n, 2), list(itertools.accumulate(range(n)))", "5", "(10, [0, 1, 3, 6, 10])"),
    ("from dataclasses import dataclass\n@dataclass(order=True)\nclass P:\n    a: int\n    b: str\n"
     "def f(xs): return [p.b for p in sorted(P(*x) for x in xs)]", "[(2, 'x'), (1, 'y')]", "['y', 'x']"),
    ("from decimal import Decimal\nfrom fractions import Fraction\ndef f(a): return str(Decimal(a) / 4), str(Fraction(3, 6))", "'1'", "('0.25', '1/2')"),
    ("import json\ndef f(d): return json.dumps(d, sort_keys=True)", "{'b': 1, 'a': [None, True]}", "'{\"a\": [null, true], \"b\": 1}'"),
    ("def f(xs, k=2, *more, **names): return xs[::k], more", "[1, 2, 3, 4, 5]", "([1, 3, 5], ())"),
    ("def f(s):\n    try:\n        return int(s)\n    except ValueError as error:\n        return type(error).__name__", "'x'", "'ValueError'"),
    ("import random\ndef f(n): return random.Random(42).randint(1, n)", "100", "82"),
    ("def f(x): return {1: {2: (3, [4])}}, frozenset([1]), b'\\x00a', None, 1.5, -0.0", "0",
     "({1: {2: (3, [4])}}, frozenset({1}), b'\\x00a', None, 1.5, -0.0)"),
    ("def f(s): return s[::-1], len(s), s.upper()", "'naïve ☃'", "('☃ evïan', 7, 'NAÏVE ☃')"),
    ("class Stack:\n    def __init__(self): self.items = []\n    def push(self, x): self.items.append(x); return self\n"
     "def f(x): return Stack().push(x).push(2).items", "1", "[1, 2]"),
    ("import copy, operator, bisect, statistics, textwrap\ndef f(x): return statistics.mean(x), bisect.bisect(x, 2), operator.add(1, 2)", "[1, 2, 3]", "(2, 2, 3)"),
    ("import base64, zlib\ndef f(s): return base64.b64encode(s), zlib.decompress(zlib.compress(s))", "b'ab'", "(b'YWI=', b'ab')"),
]  # fmt: skip
for index, (source, inputs, value) in enumerate(CONTROLS):
    program("control", f"program {index}", source, f"ok {value}", inputs=inputs)
    request = {"role": "solution", "answer": source, "pairs": [[inputs, value]]}
    answer("control", f"solution {index}", request, "correct")
    answer("control", f"wrong solution {index}", {**request, "pairs": [[inputs, value], [inputs, "'wrong'"]]}, "incorrect")
    answer("control", f"input {index}", {"role": "input", "program": source, "answer": inputs, "output": value}, "correct")
