"""docs/paper.md: the code and the tests that its rows name exist, and its settings have the values that it states."""

import ast
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from populora.core.config import Config
from populora.core.config_file import flatten, load_config, to_mapping
from populora.core.presets import settings_file

ROOT = Path(__file__).parents[2]
PAGE, PACKAGE = ROOT / "docs" / "paper.md", ROOT / "src" / "populora"
HEADER = ["statement", "where", "setting", "test", "ours"]
OURS = ("**same**", "**reading**", "**deviation**", "**not possible here**")
UNTESTED = "tests never"
"""What the last column of a row says that no test covers, although it is possible here."""
NO_SETTING = "no setting"
MAIN = "paper_4t4s"
"""The preset that has the value of a row without a preset, in addition to the defaults."""
SETTING = re.compile(r"`(?P<name>[\w.]+) = (?P<value>[^`]+)`(?: \((?P<preset>\w+); default (?P<default>[^)]+)\))?")
NAMES = re.compile(r"`[^`]+`(, `[^`]+`)*")


def rows_of(page: str) -> list[list[str]]:
    """The cells of every row of every table."""
    lines = (line.strip() for line in page.splitlines())
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("| ")]
    return [row for row in rows if row != HEADER]


@cache
def names_in(file: Path) -> frozenset[str]:
    """Functions, classes, their methods, and assigned names of a module."""
    names: set[str] = set()
    for node in ast.parse(file.read_text("utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        names |= {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
        names |= {node.name} if isinstance(node, ast.FunctionDef | ast.ClassDef) else set()
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{item.name}" for item in node.body if isinstance(item, ast.FunctionDef)}
    return frozenset(names)


@cache
def values_of(preset: str) -> dict[str, Any]:
    """All settings of a preset, of the defaults for an empty name; tuples are lists, as in TOML."""
    plain = flatten(to_mapping(load_config(settings_file(preset)) if preset else Config()))
    return {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}


def absent(cell: str, empty: str, folder: Path, mark: str) -> list[str]:
    """What a cell names in ``folder`` and is not there; ``mark`` stands between file and name."""
    if cell == empty:
        return []
    if not NAMES.fullmatch(cell):
        return [f"expected names in backticks or {empty}, got {cell}"]
    split = [(name, *name.strip("`").partition(mark)) for name in cell.split(", ")]
    return [name for name, file, _, part in split if not ((folder / file).is_file() and (not part or part in names_in(folder / file)))]


def unequal(cell: str) -> list[str]:
    """The settings of a cell that have another value."""
    if cell == "–":
        return []
    if SETTING.sub("", cell).replace(", ", ""):
        return [f"expected settings or –, got {cell}"]
    wrong: list[str] = []
    for match in SETTING.finditer(cell):
        name, stated = match["name"], match["value"]
        expected = {match["preset"]: stated, "": match["default"]} if match["preset"] else {MAIN: stated, "": stated}
        for preset, text in expected.items():
            actual = values_of(preset).get(name)
            if actual != tomllib.loads(f"value = {text}")["value"]:
                wrong.append(f"{name} is {actual!r} in {preset or 'the defaults'}, not {text}")
    return wrong


def faults(row: list[str]) -> list[str]:
    """What is wrong with a row."""
    if len(row) != len(HEADER) or not all(row):
        return [f"expected {len(HEADER)} cells, got {row}"]
    _, where, setting, test, ours = row
    unknown = [] if ours.startswith(OURS) else [f"expected one of {', '.join(OURS)}, got {ours}"]
    unknown += [] if test == "none" or all("::test_" in name for name in test.split(", ")) else [f"expected tests, got {test}"]
    if test == "none" and not ours.startswith(OURS[-1]) and UNTESTED not in ours:
        unknown.append(f"expected a test, or the reason why there is none ({UNTESTED} …), got {ours}")
    if ours.startswith(OURS[2]) and "`" not in ours and NO_SETTING not in ours.lower():
        unknown.append(f"expected the setting that gives the paper's, or {NO_SETTING}, got {ours}")
    return absent(where, "–", PACKAGE, ":") + unequal(setting) + absent(test, "none", ROOT, "::") + unknown


def test_every_row_names_what_exists_and_states_the_settings_values():
    rows = rows_of(PAGE.read_text("utf-8"))
    assert [(row[0], fault) for row in rows for fault in faults(row)] == []
    assert len(rows) > 150 and len({row[0] for row in rows}) == len(rows)


TEST = "`tests/docs/test_paper.py::test_a_wrong_row_is_found`"
GOOD = f"| a statement | `core/config.py:Config` | `steps = 200` | {TEST} | **same** |"


@pytest.mark.parametrize(
    ("right", "wrong", "fault"),
    [
        ("core/config.py:Config", "core/config.py:Konfig", "Konfig"),
        ("core/config.py:Config", "core/nothing.py", "nothing"),
        ("`core/config.py:Config`", "somewhere", "expected names"),
        ("200", "201", "steps is 200 in paper_4t4s, not 201"),
        ("`steps = 200`", "`steps = 200` (paper_1t1s; default 100)", "steps is 200 in the defaults, not 100"),
        ("`steps = 200`", "`lora.rank = 8` (paper_1t1s; default 32)", "lora.rank is 32 in paper_1t1s, not 8"),
        ("steps", "stepps", "stepps is None"),
        ("`steps = 200`", "200 steps", "expected settings"),
        ("::test_a_wrong_row_is_found", "::test_nothing", "test_nothing"),
        ("::test_a_wrong_row_is_found", "::faults", "expected tests"),
        ("**same**", "the same", "expected one of"),
        ("| **same** |", "|", "expected 5 cells"),
        (TEST, "none", "expected a test"),
        ("**same**", "**deviation**: it is faster", "expected the setting"),
    ],
)
def test_a_wrong_row_is_found(right, wrong, fault):
    assert [faults(row) for row in rows_of(GOOD)] == [[]]
    found = [message for row in rows_of(GOOD.replace(right, wrong)) for message in faults(row)]
    assert found and fault in found[0]


@pytest.mark.parametrize(
    ("test", "ours"),
    [
        ("none", "**not possible here**"),
        ("none", f"**same**: {UNTESTED} measure time"),
        (TEST, "**deviation**: `a.b` is the paper's"),
        (TEST, "**deviation**: it is faster. No setting changes it."),
    ],
)
def test_a_row_may_lack_a_test_or_a_setting_if_it_says_why(test, ours):
    assert [faults(row) for row in rows_of(GOOD.replace(TEST, test).replace("**same**", ours))] == [[]]
