"""docs/domains.md: its code is that of the tested example, and its commands can be typed."""

import re
import shlex
import tomllib
from dataclasses import fields
from pathlib import Path

from populora.cli.arguments import parse_settings
from populora.cli.train import Train
from populora.domains import Domain
from populora.domains.prompt_files import SETTINGS, SHOWN
from populora.training.buffer import read_problems

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "domain_calculator"
PAGE = ROOT / "docs" / "domains.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILES = [path.read_text("utf-8") for path in EXAMPLE.rglob("*") if path.suffix in (".py", ".toml")]
TESTS = [path.read_text("utf-8") for path in (ROOT / "tests" / "domains").glob("test_*.py")]


def foreign(page: str) -> list[str]:
    """The blocks of code that occur neither in a file of the example nor in the tests that install it."""
    blocks = [content for language, content in BLOCK.findall(page) if language]
    assert len(blocks) >= 8
    return [block for block in blocks if not any(block in text for text in [*FILES, *TESTS])]


def test_every_block_of_code_is_quoted_from_tested_files():
    assert foreign(PAGE.read_text("utf-8")) == []


def test_another_block_is_found():
    assert len(foreign(PAGE.read_text("utf-8").replace("MAX_DEPTH:", "MAX_DEPTHS:"))) == 1


def test_the_page_shows_the_whole_runner_but_its_constants():
    quoted = "".join(content for _, content in BLOCK.findall(PAGE.read_text("utf-8")))
    functions = re.findall(r"^def \w+", (EXAMPLE / "calculator_domain" / "runner.py").read_text("utf-8"), re.MULTILINE)
    assert [name for name in functions if f"{name}(" not in quoted] == ["def depth_of"]


def test_the_page_describes_every_field_of_a_declaration():
    rows = re.findall(r"^\| `(\w+)` \|", PAGE.read_text("utf-8"), re.MULTILINE)
    assert {field.name for field in fields(Domain)} <= set(rows)


def test_the_page_describes_every_key_of_a_prompt_file():
    section = PAGE.read_text("utf-8").partition("\n## 4.")[2].partition("\n## 5.")[0]
    assert [*SETTINGS] == re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    (file,) = [tomllib.loads(content) for language, content in BLOCK.findall(section) if language == "toml"]
    assert file.keys() == SETTINGS.keys() | SHOWN.keys()


def test_commands_that_train_can_be_typed_and_the_seeds_can_be_read(tmp_path):
    lines = PAGE.read_text("utf-8").splitlines()
    commands = [shlex.split(line) for line in lines if line.startswith("populora train")]
    domains = [parse_settings(Train, words[2:], "train").settings.domains for words in commands]
    assert domains == [("calculator",), ("python", "calculator")]
    (tmp_path / "seeds.jsonl").write_text("\n".join(line for line in lines if line.startswith('{"id"') and '"shown"' in line))
    assert [problem.task for problem in read_problems(tmp_path / "seeds.jsonl")] == ["calculator_o", "calculator_f"]
