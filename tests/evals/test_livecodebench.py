"""LiveCodeBench's semantics on a folder of files in its official format, made here."""

import base64
import json
import pickle
import zlib

import pytest

from populora.core.errors import ConfigError
from populora.evals.benchmarks import BENCHMARKS
from populora.evals.data import digest_of, load_items
from populora.evals.graders import livecodebench
from populora.evals.graders.livecodebench import cases_of, extract_solutions, grade_livecodebench, load_livecodebench

LCB = BENCHMARKS["livecodebench"]


def packed(tests):
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(tests)))).decode()


def case(inputs, output, kind="stdin"):
    return {"input": inputs, "output": output, "testtype": kind}


def row(name, public, private, function="", starter=""):
    metadata = json.dumps({"func_name": function} if function else {})
    return {
        "question_id": name, "question_content": "Add.", "starter_code": starter, "public_test_cases": json.dumps(public),
        "private_test_cases": private, "metadata": metadata,
    }  # fmt: skip


ADD = row("add", [case("1 2\n", "3\n")], packed([case("5 6\n", "11"), case("2 2", "4\n\n")]))
CALL = row("call", [case("[1, 2]\n3", "[4, 5]", "functional")], json.dumps([case("[]\n1", "[]", "functional")]), "shift")
NESTED = row("nested", [case("1", "[[1, 1]]", "functional")], packed([]), "twins")
HALF = row("half", [case("1\n", "0.50 1\nok\n")], packed([]))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "test.jsonl").write_text(json.dumps(ADD) + "\n" + json.dumps(CALL) + "\n")
    (tmp_path / "test2.jsonl").write_text(json.dumps(HALF) + "\n" + json.dumps(NESTED) + "\n")
    return tmp_path


@pytest.fixture
def reason(folder, pool_of):
    items = {item.id: item for item in load_livecodebench(folder)}
    return lambda name, code: grade_livecodebench(pool_of("livecodebench"), LCB, items[name], code, is_solution=True).reason


def test_problems_are_read_from_all_files_and_their_tests_when_needed(folder):
    items = load_livecodebench(folder)
    assert [item.id for item in items] == ["add", "call", "half", "nested"]
    assert cases_of(items[0]) == ("", ["1 2\n", "5 6\n", "2 2"], ["3\n", "11", "4\n\n"])
    assert cases_of(items[1])[0] == "shift" and "input" not in items[0].fields
    with pytest.raises(ConfigError, match=f"'{folder}' has 4 items: expected the 880 of livecodebench in the paper"):
        load_items(LCB, folder)


@pytest.mark.parametrize(
    "name, code, expected",
    [
        ("add", "print(sum(map(int, input().split())))", ""),
        ("add", "import sys\na, b = sys.stdin.buffer.read().split()\nprint(int(a) + int(b))", ""),
        ("add", "a, b = map(int, open(0).read().split())\nprint(a + b)", ""),
        ("add", "def main():\n    print(sum(map(int, input().split())))\nif __name__ == '__main__':\n    main()", ""),
        ("add", "print(sum(map(int, input().split())))\nexit()", ""),
        ("add", "a, b = map(int, input().split())\nprint(a + b if a < 5 else 0)", "wrong:1"),
        ("add", "a, b = map(int, input().split())\nif a > 0:\n    print(a + b)\n    return\nprint(0)", ""),  # the body of a function
        ("add", "n = 0\ndef main():\n    global n\n    n += 1\n    print(sum(map(int, input().split())))\nmain()", "NameError:0"),
        ("add", "if __name__ == '__main__':\n    print(sum(map(int, input().split())))\ndone = True", "wrong:0"),  # only a last one
        ("add", "from sys import stdin\na, b = stdin.readline().split()\nprint(int(a) + int(b))", ""),
        ("add", "class Solution:\n    pass\nprint(sum(map(int, input().split())))", ""),
        ("add", "import sys", "wrong:0"),
        ("add", "print(", "SyntaxError:0"),
        ("add", "print(1 / 0)", "ZeroDivisionError:0"),
        ("add", "", "no_answer"),
        ("half", "print('0.5   1')\nprint('  ok ')", ""),  # decimals and white space
        ("half", "print('0.5 1.0001')\nprint('ok')", "wrong:0"),
        ("half", "print('0.5 1')", "wrong:0"),  # a line too few
        ("call", "class Solution:\n    def shift(self, xs: List[int], k):\n        return [x + k for x in xs]", ""),
        ("call", "def shift(xs, k):\n    return tuple(x + k for x in xs)", ""),
        ("call", "import numpy\ndef shift(xs, k):\n    return [numpy.int64(x + k) for x in xs]", ""),
        ("call", "from __future__ import annotations\ndef shift(xs: Unknown, k):\n    return [x + k for x in xs]", ""),
        ("nested", "def twins(x):\n    return ([x, x],)", ""),
        ("nested", "def twins(x):\n    return [(x, x)]", "wrong:0"),  # as upstream: only the outermost tuple is a list
        ("add", "print(sum(map(int, input().split())))\nimport sys\nsys.stdout.close()", ""),
        ("call", "def shift(xs, k):\n    return {1, 2}", "TypeError:0"),
    ],
)
def test_programs_are_judged_as_upstream_judges_them(reason, name, code, expected):
    assert reason(name, code) == expected


def test_a_test_has_its_own_time(reason, monkeypatch):
    monkeypatch.setattr(livecodebench, "SECONDS", 0.3)
    assert reason("add", "while True:\n    pass") == "timeout:0"


def test_damaged_files_are_named(folder, tmp_path):
    (folder / "test3.jsonl").write_text(json.dumps(ADD) + "\n")
    with pytest.raises(ConfigError, match="'add' more than once"):
        load_items(LCB, folder, verify=False)
    (folder / "test3.jsonl").write_text('{"question_id": "x"}\n')
    with pytest.raises(ConfigError, match=r"test3.jsonl', byte 0: a problem lacks metadata"):
        load_livecodebench(folder)
    with pytest.raises(ConfigError, match="has no test"):
        load_livecodebench(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "completion, strict, lenient",
    [
        ("so</think><answer>```python\nprint(1)\n```</answer>", "print(1)\n", "print(1)\n"),
        ("```python\na\n```\n```python\nb\n```", "", "b\n"),
        ("<answer>```python\na\n```\nFor the sample this prints:\n```\n3\n```</answer>", "a\n", "a\n"),
        ("```Python3 title=x\na\n```\n```bash\npython a.py\n```", "", "a\n"),
        ("```\na\n```\n```output\n3\n```", "", "a\n"),
        ("```code\na\n```", "", "a\n"),
        ("print(1)", "", "print(1)"),
    ],
)
def test_the_program_is_the_last_fence_of_the_answer_or_all_of_it(completion, strict, lenient):
    assert extract_solutions(completion) == {"strict": strict, "lenient": lenient}


class Harmful:
    def __reduce__(self):
        return print, ("read",)


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickled_string_is_read_in_every_protocol(folder, protocol):
    tests = [case("ä\n" * 300, "✓")]
    data = base64.b64encode(zlib.compress(pickle.dumps(json.dumps(tests, ensure_ascii=False), protocol))).decode()
    (folder / "test.jsonl").write_text(json.dumps({**ADD, "public_test_cases": "[]", "private_test_cases": data}) + "\n")
    assert cases_of(load_livecodebench(folder)[0]) == ("", ["ä\n" * 300], ["✓"])


@pytest.mark.parametrize("value", [["a", "b"], 5, {"a": "b"}, Harmful()])
def test_another_pickle_is_refused(folder, value):
    bad = base64.b64encode(zlib.compress(pickle.dumps(value))).decode()
    (folder / "test.jsonl").write_text(json.dumps({**ADD, "private_test_cases": bad}) + "\n")
    with pytest.raises(ConfigError, match=r"'add' cannot be read .*expected a pickled string"):
        cases_of(load_livecodebench(folder)[0])


def test_the_digest_of_a_folder_is_of_the_names_and_contents_of_all_its_files(folder):
    """Verdicts do not outlive the tests that they were made with."""
    digests = {digest_of(folder)}
    (folder / "test2.jsonl").write_text(json.dumps(HALF) + "\n")
    digests.add(digest_of(folder))
    (folder / "test2.jsonl").rename(folder / "test3.jsonl")
    assert len(digests | {digest_of(folder)}) == 3
