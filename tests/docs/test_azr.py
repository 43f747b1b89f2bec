"""docs/azr.md: the baseline and `azr_released` have the settings that its tables state."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from populora.core.config_file import flatten, load_config, to_mapping
from populora.core.presets import settings_file

PAGE = Path(__file__).parents[2] / "docs" / "azr.md"
SETTING = re.compile(r"`([\w.]+) = ([^`]+)`")


def columns(page: str) -> tuple[list[str], list[str]]:
    """The cells of the columns "ours" and "setting" of the tables of differences."""
    lines = [line for line in page.partition("## What it changes")[0].splitlines() if line.startswith("| ") and not line.startswith("| |")]
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]
    assert all(len(row) == 4 for row in rows), [row[0] for row in rows if len(row) != 4]
    return [row[2] for row in rows], [row[3] for row in rows]


def unequal(cells: list[str], preset: str) -> list[str]:
    """The settings that these cells state and the preset does not have."""
    values: dict[str, Any] = flatten(to_mapping(load_config(settings_file(preset))))
    stated = [match.groups() for cell in cells for match in SETTING.finditer(cell)]
    assert len(stated) > 5
    return [f"{name} = {text}" for name, text in stated if values.get(name) != tomllib.loads(f"value = {text}")["value"]]


def test_the_page_states_the_settings_of_both_arms():
    ours, azrs = columns(PAGE.read_text("utf-8"))
    assert unequal(ours, "paper_baseline") == [] == unequal(azrs, "azr_released")


def test_every_difference_has_a_setting_or_the_reason_why_not():
    _, cells = columns(PAGE.read_text("utf-8"))
    assert [cell for cell in cells if not (SETTING.search(cell) or cell.startswith(("none", "the presets")))] == []


def test_every_setting_in_which_the_arms_differ_is_on_the_page():
    ours, azr = (flatten(to_mapping(load_config(settings_file(name)))) for name in ("paper_baseline", "azr_released"))
    named = {match[1] for cell in columns(PAGE.read_text("utf-8"))[1] for match in SETTING.finditer(cell)}
    assert {name for name in azr if azr[name] != ours[name]} <= named


@pytest.mark.parametrize("changed", ["rewards.boundary = 0.25", "rewards.bound = -0.5"])
def test_another_value_and_an_unknown_setting_are_found(changed):
    _, cells = columns(PAGE.read_text("utf-8").replace("rewards.boundary = -0.5", changed))
    assert unequal(cells, "azr_released") == [changed]
