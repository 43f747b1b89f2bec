"""The four structural metrics of a program (paper, appendix "Problem-Space Coverage") and its identity.

Readings that the paper leaves open, chosen so that the labels of its six printed programs come out:

- AST depth counts from the module at 0 over *all* nodes (context and operator nodes included).
- Cyclomatic complexity adds 1 for each ``if``/``elif``, ``for``, ``while``, ``except``, ``and``, ``or``, ``assert`` and, beyond
  the printed list, for each ``for`` of a comprehension. Conditional expressions, comprehension filters and ``match`` add nothing.
- Lines of code hold at least one token that is not a comment; blank lines inside a string do not count, docstring lines do.
- Variables are the distinct names bound by assignment, loop, comprehension, ``with``, ``except``, walrus or ``match`` capture.
  Parameters, functions, classes and imports are not variables.

Standard library only, and loadable by file path: sandbox children run it, because parsing is part of what is untrusted.
"""

import ast
import io
import sys
import tokenize
from collections.abc import Iterable
from importlib import import_module, util
from typing import Any, cast

_BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.Assert, ast.comprehension)
_DOCUMENTED = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_HASHES = "_sha2" if sys.version_info >= (3, 12) else "_sha256"
"""Python's own hashes. `hashlib` maps OpenSSL into the process, which takes as long as measuring some fifty programs."""
_sha256: Any = import_module(_HASHES if util.find_spec(_HASHES) else "hashlib").sha256
_BLANK_TOKENS = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def measure(source: str) -> tuple[int, int, int, int]:
    """Count AST depth, cyclomatic complexity, lines of code and variables of ``source``: the axes of the coverage archive.

    Raises what `ast.parse` raises for text that is no program (`SyntaxError`, `ValueError`, `RecursionError`, `MemoryError`).
    """
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    return _depth(tree), _cyclomatic(nodes), _lines(source), _variables(nodes)


def fingerprint(normal_form: str) -> str:
    """Compute the SHA-256 (hex) of a text, which may have lone surrogates."""
    return _sha256(normal_form.encode("utf-8", "surrogatepass")).hexdigest()


def normal_form(source: str) -> str:
    """Write the AST as a text without positions, comments, layout and docstrings. Raises as `measure` does."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and node.body and _is_string(node.body[0]):
            del node.body[0]
    return "".join(map(_skeleton, ast.walk(tree)))


def _skeleton(node: ast.AST) -> str:
    """Write one node with a mark in each child's place. In level order such texts determine the tree, at any depth."""
    fields: list[str] = []
    for name, value in ast.iter_fields(node):
        items = cast("list[object]", value) if isinstance(value, list) else [value]
        if value is not None and items:  # Python versions represent absent fields differently
            fields += [name, *("*" if isinstance(item, ast.AST) else repr(item) for item in items)]
    return f"{type(node).__name__}({' '.join(fields)})"


def _is_string(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant) and isinstance(statement.value.value, str)


def _depth(tree: ast.AST) -> int:
    # Level by level rather than recursively: a long chain of operators nests deeper than Python's own stack allows.
    depth, level = 0, [tree]
    while level := [child for node in level for child in ast.iter_child_nodes(node)]:
        depth += 1
    return depth


def _cyclomatic(nodes: Iterable[ast.AST]) -> int:
    complexity = 1
    for node in nodes:
        if isinstance(node, ast.BoolOp):
            complexity += len(node.values) - 1
        elif isinstance(node, _BRANCHES):
            complexity += 1
    return complexity


def _lines(source: str) -> int:
    text = io.StringIO(source, newline=None)
    blank = {number for number, line in enumerate(text, start=1) if not line.strip()}
    text.seek(0)
    covered: set[int] = set()
    for token in tokenize.generate_tokens(text.readline):
        if token.type not in _BLANK_TOKENS:
            covered.update(range(token.start[0], token.end[0] + 1))
    return len(covered - blank)


def _variables(nodes: Iterable[ast.AST]) -> int:
    names: set[str | None] = set()
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
            names.add(node.name)
        elif isinstance(node, ast.MatchMapping):
            names.add(node.rest)
    return len(names - {None})
