"""Model text is data: outside the sandbox's processes no module of the package can compile, evaluate or unpickle text."""

import ast
from importlib.resources import files
from pathlib import Path

import pytest

SOURCE = Path(str(files("populora")))
EVALUATE = {"eval", "exec", "compile", "__import__", "ast.parse", "ast.literal_eval"}
UNPACK = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "runpy"}
MAY = {
    "sandbox/python_runner.py": "runs in the process that the sandbox forks for a program",
    "sandbox/expressions.py": "the same",
    "sandbox/zygote.py": "loads harnesses, which are files of ours",
    "evals/harness/code_harness.py": "is loaded by the sandbox, and runs in the process that it forks",
    "evals/harness/cruxeval_harness.py": "the same",
    "evals/harness/livecodebench_harness.py": "the same",
    "sandbox/complexity.py": "is loaded by that process",
    "sandbox/child.py": "runs there, and fingerprints normal forms",
}


def dangers(source: str) -> set[str]:
    """What a module calls or imports that could turn text into code or objects."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            names |= {ast.unparse(node.func)} & EVALUATE
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names} & {*UNPACK, "populora.sandbox.complexity"}
        elif isinstance(node, ast.ImportFrom):
            names |= {node.module or ""} & {*UNPACK, "ast", "populora.sandbox.complexity"}
    return names


def test_only_the_sandbox_handles_text_as_code():
    modules = {str(path.relative_to(SOURCE)): path for path in SOURCE.rglob("*.py")}
    assert set(MAY) <= set(modules)
    assert {name: names for name, path in modules.items() if name not in MAY and (names := dangers(path.read_text()))} == {}


@pytest.mark.parametrize(
    "source",
    ["eval(text)", "exec(text, {})", "compile(text, '', 'exec')", "ast.literal_eval(text)", "ast.parse(text)", "import pickle",
     "from pickle import loads", "from ast import parse", "from populora.sandbox.complexity import measure"],
)  # fmt: skip
def test_the_check_sees_each_of_them_and_lets_others_pass(source):
    assert dangers(source) and not dangers("re.compile(text)\nmodel.eval()\nparse(arguments)")
