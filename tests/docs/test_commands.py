"""The commands in docs/evaluation.md have only options that exist."""

import re
import shlex
from pathlib import Path

import pytest

from populora.cli.arguments import parse
from populora.cli.evaluate import Evaluate, TableArguments
from populora.cli.evaluate_compare import Compare
from populora.cli.evaluate_grade import GradeArguments
from populora.cli.report import Report
from populora.core.errors import ConfigError

PAGE = Path(__file__).parents[2] / "docs" / "evaluation.md"
PARTS = {"table": TableArguments, "compare": Compare, "grade": GradeArguments}


def check(command: str) -> None:
    """Raise `ConfigError` for an option that the command does not have."""
    _, name, *arguments = shlex.split(command, comments=True)
    if name == "report":
        parse(Report, arguments, name)
    elif arguments[0] in PARTS:
        parse(PARTS[arguments[0]], arguments[1:], f"{name} {arguments[0]}")
    else:
        parse(Evaluate, arguments, name)


def test_commands_on_the_page_of_evaluation_can_be_typed():
    blocks = re.findall(r"^```\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    commands = [line for block in blocks for line in block.replace("\\\n", " ").splitlines() if line.startswith("populora ")]
    assert len(commands) >= 10
    for command in commands:
        check(command)
    with pytest.raises(ConfigError, match="--membres"):
        check("populora evaluate runs/tiny --membres T0")
