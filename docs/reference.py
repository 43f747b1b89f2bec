"""Write the pages that follow from the code: configuration.md from the dataclasses of the settings, and a page for each preset.

python docs/reference.py          writes docs/configuration.md and docs/presets/*.md; a test compares them
"""

import ast
import inspect
import tomllib
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from populora.core import config as settings
from populora.core.config import Config
from populora.core.config_file import flatten, load_config, to_mapping
from populora.core.presets import FOLDER, RETENTION, preset_names, read_preset

DOCS = Path(__file__).parent
PAPER = "paper_4t4s"
INTRODUCTION = (
    "Every setting can be in a TOML file, under the heading of its section, or a flag: `--learner.learning-rate 3e-3`. *Reading n* is row "
    "n of the [readings of the paper](decisions.md#readings-of-the-paper). `python docs/reference.py` writes this page from the code."
)


def pages() -> dict[str, str]:
    """Return the text of every page by its name in ``docs``."""
    names = [*preset_names(), *preset_names(retention=True)]
    presets = {f"presets/{name}.md": preset_page(name) for name in names}
    return {"configuration.md": configuration_page(), "presets/index.md": presets_page(names), **presets}


def configuration_page() -> str:
    """List all settings by section: name, default, the value of the paper's preset, and the meaning."""
    defaults, paper = flatten(to_mapping(Config())), flatten(to_mapping(load_config(FOLDER / f"{PAPER}.toml")))
    documented = documentation()
    sections: dict[str, list[str]] = {}
    for name in defaults:
        sections.setdefault(name.rpartition(".")[0], []).append(name)
    lines = [
        "# Configuration", "",
        f"{INTRODUCTION} Where the preset `{PAPER}` has another value than the default, the third column has it.", "",
    ]  # fmt: skip
    for section, members in sections.items():
        kind = section_class(section)
        lines += [
            f"## {section or 'The run'}",
            "",
            inspect.cleandoc(kind.__doc__ or ""),
            "",
            f"| setting | default | `{PAPER}` | meaning |",
        ]
        lines += ["|---|---|---|---|"]
        for name in members:
            other = "" if paper[name] == defaults[name] else code(paper[name])
            field = name.rpartition(".")[2]
            meaning = documented.get((kind.__name__, field), "") + choices(get_type_hints(kind)[field])
            lines.append(f"| `{name}` | {code(defaults[name])} | {other} | {meaning} |")
        lines.append("")
    return "\n".join(lines)


def choices(kind: Any) -> str:
    """Return a sentence with the values that a setting of this type may have, if they are listed."""
    listed = get_args(kind) if get_origin(kind) is Literal else get_args(get_args(kind)[0]) if get_origin(kind) is tuple else ()
    return f" *One of* {', '.join(map(code, listed))}." if listed else ""


def section_class(section: str) -> type:
    return type(getattr(Config(), section)) if section else Config


def documentation() -> dict[tuple[str, str], str]:
    """Return the docstring of each field, by class and field, in Markdown of one line."""
    texts: dict[tuple[str, str], str] = {}
    for part in ast.parse(inspect.getsource(settings)).body:
        if isinstance(part, ast.ClassDef):
            for field, after in zip(part.body, part.body[1:], strict=False):
                if isinstance(field, ast.AnnAssign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                    text = " ".join(str(after.value.value).split()).replace("``", "`").replace("|", "\\|")
                    texts[part.name, ast.unparse(field.target)] = text
    return texts


def code(value: Any) -> str:
    """Return a value as it stands in TOML."""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, list | tuple):
        return f"`[{', '.join(code(part).strip('`') for part in value)}]`"
    return f'`"{value}"`' if isinstance(value, str) else f"`{value:.4g}`" if isinstance(value, float) else f"`{value}`"


def presets_page(names: list[str]) -> str:
    """List the presets with hardware and time."""
    lines = ["# Presets", "", "`populora init NAME` writes a preset as a file to edit.", "", "| preset | what | hardware | time |"]
    lines += ["|---|---|---|---|"]
    for name in names:
        preset = read_preset(name)
        lines.append(f"| [{name}]({name}.md) | {preset.summary} | {preset.hardware} | {preset.time} |")
    return "\n".join([*lines, ""])


def preset_page(name: str) -> str:
    """Describe a preset: command, hardware, time, what has been measured, and its settings beside the defaults."""
    preset, command = read_preset(name), "retention" if name.startswith(RETENTION) else "train"
    text = (FOLDER / f"{name}.toml").read_text(encoding="utf-8")
    for said in (preset.summary, f"Hardware: {preset.hardware}.", f"Time: {preset.time}."):
        text = text.replace(f"# {said}\n", "", 1)
    changed = flatten(tomllib.loads(text))
    lines = [f"# {name}", "", preset.summary, "", "```", f"populora {command} {name}", "```", ""]
    lines += [f"- Hardware: {preset.hardware}.", f"- Time: {preset.time}.", ""]
    lines += [MEASURED.get(name, "No run of this preset has been measured."), ""]
    if name in CURVES:
        lines += [f"![{name}: failed attempts, size of programs and held-out accuracy by step]({name}.png)", "", CURVES[name], ""]
    lines += ["## Settings", "", f"It sets {len(changed)} values; all others are [the defaults](../configuration.md)."]
    return "\n".join([*lines, "", "```toml", text.strip(), "```", ""])


_MINUTES = "{} seeds of these settings are in [the first minutes](../measurements.md#learning)."
_ARMS = (
    "Runs of 100 steps, several seeds of each arm, are in [the first comparison](../../benchmarks/first_run/README.md). They had earlier "
    "settings, which that page names."
)
_SQL = "Five seeds of 100 steps are in [the comparison in SQL](../../benchmarks/sql/README.md)."
_AZR = "Three of 50 steps are in [the comparison with Absolute Zero](../azr.md#what-it-changes-on-the-tiny-base)."
_RETENTION = "What its runs have shown is in [operator retention](../retention.md#what-it-shows), with figures."
MEASURED = {
    "tiny": f"{_MINUTES.format('Five')} {_ARMS}",
    **dict.fromkeys(("tiny_1t1s", "tiny_baseline"), f"{_MINUTES.format('Three')} {_ARMS}"),
    "tiny_4t4s": _ARMS,
    "tiny_azr": f"{_MINUTES.format('Three')} {_AZR}",
    **dict.fromkeys(("sql", "sql_baseline"), _SQL),
    **dict.fromkeys(("retention", "retention_full"), _RETENTION),
}
"""Where the runs of a preset are described."""
CURVES = {
    name: "Thin lines are seeds, the thick one is their mean. "
    f"Curves of every step are means over the last five (`python docs/curves.py`). {note}"
    for name, note in {
        **dict.fromkeys(
            ("tiny", "tiny_1t1s", "tiny_baseline"),
            "These runs had the settings below, but for `evaluation.every`, which was 8.",
        ),
        "tiny_azr": "These runs had the settings below, but for `evaluation.every`, which was 8, and `learner.tis_cap`, which was 2.",
        "tiny_4t4s": "These runs had earlier settings: 100 steps at a learning rate of 3e-3.",
        **dict.fromkeys(("sql", "sql_baseline"), "These runs had the settings below."),
    }.items()
}
"""What is to be known of a preset's picture."""


def main() -> None:
    for name, text in pages().items():
        file = DOCS / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
