"""README and docs/: links lead somewhere, commands work, quoted messages exist, and generated pages are current."""

import ast
import importlib
import inspect
import os
import re
import shlex
import shutil
from functools import cache
from pathlib import Path

import pytest

import populora
from populora.cli.main import COMMANDS, main
from populora.core.config_file import load_config
from populora.core.errors import ConfigError

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("benchmarks/**/*.md"), *ROOT.glob("experiments/**/*.md")])
TYPED = [page for page in PAGES if page.parent in (ROOT, ROOT / "docs")]
BLOCK = re.compile(r"^```(?:sh)?\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]*))?\)")


def commands_of(page: Path) -> list[str]:
    """The commands of populora in a page's blocks, a command continued on the next line as one."""
    lines = [line for block in BLOCK.findall(page.read_text("utf-8")) for line in block.replace("\\\n", " ").splitlines()]
    typed = [line.removeprefix("$ ").removeprefix(".venv/bin/").split(" < ")[0] for line in lines]
    return [line for line in typed if re.match(r"populora [a-z]+", line)]


def headings(page: Path) -> set[str]:
    """The anchors of a page, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower()).replace(" ", "-") for title in titles}


def broken_links(page: Path) -> list[str]:
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    broken = []
    for path, anchor in LINK.findall(text):
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in headings(target)):
            broken.append(f"{path}#{anchor}")
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(page):
    assert broken_links(page) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_picture_says_in_words_what_it_shows(page):
    assert all(len(words.split()) >= 5 for words in re.findall(r"!\[([^\]]*)\]\(", page.read_text("utf-8")))


def test_a_link_to_nothing_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A title\n[a](page.md#a-title) [b](page.md#no) [c](other.md) [d](https://example.org/x)\n")
    assert broken_links(page) == ["page.md#no", "other.md#"]


def test_generated_pages_are_those_that_the_code_gives():
    """`python docs/reference.py` writes them."""
    pages = reference().pages()
    assert {name: (ROOT / "docs" / name).read_text("utf-8") for name in pages} == pages
    written = {str(file.relative_to(ROOT / "docs")) for file in (ROOT / "docs/presets").glob("*.md")}
    assert written == {name for name in pages if name.startswith("presets/")}


def test_every_setting_has_a_meaning():
    page = reference().configuration_page()
    assert [line for line in page.splitlines() if line.startswith("| `") and line.endswith("|  |")] == []


@cache
def reference():
    specification = importlib.util.spec_from_file_location("reference", ROOT / "docs" / "reference.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_the_readme_is_short():
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(text.splitlines()) <= 120 and len(text.split()) <= 950


@cache
def messages() -> list[str]:
    """All texts of the package, with … for what is filled in."""
    texts = []
    for file in (ROOT / "src/populora").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                texts.append("".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    return texts


def is_raised(fragment: str) -> bool:
    pattern = re.compile(".*".join(re.escape(part) for part in fragment.split("…")), re.DOTALL)
    return any(pattern.search(text) for text in messages())


def test_troubleshooting_quotes_messages_that_exist():
    quoted = re.findall(r"^### .*?`(.+?)`", (ROOT / "docs/troubleshooting.md").read_text("utf-8"), re.MULTILINE)
    assert len(quoted) >= 20 and [fragment for fragment in quoted if not is_raised(fragment)] == []
    assert not is_raised("the moon is missing")


class Parsed(BaseException):
    """Raised in the place of a command's work."""


def parse(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the arguments of a command as the command does. Raises `ConfigError` for an option that it does not have."""
    _, name, *arguments = shlex.split(command, comments=True)
    modules = [importlib.import_module(f"populora.cli.{module}") for module in COMMANDS if module.startswith(name)]
    modules += [importlib.import_module(f"populora.cli.evaluate_{part}") for part in ("compare", "generate", "grade", "pairs")]
    with monkeypatch.context() as patched:
        for module in modules:
            for reader in ("parse", "parse_settings"):
                if hasattr(module, reader):
                    patched.setattr(module, reader, parsed(getattr(module, reader)))
        try:
            main([name, *arguments])
        except Parsed:
            return
    raise AssertionError(f"{command}: read no arguments")


def parsed(reader):
    def read(*arguments, **named):
        reader(*arguments, **named)
        raise Parsed

    return read


@pytest.mark.parametrize("page", [page for page in TYPED if commands_of(page)], ids=lambda page: page.name)
def test_commands_of_a_page_can_be_typed(page, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text("")
    for command in commands_of(page):
        try:
            parse(command, monkeypatch)
        except ConfigError as error:
            pytest.fail(f"{command}: {error}")
        assert "error" not in capsys.readouterr().err, command


def test_an_option_that_does_not_exist_is_noticed(monkeypatch, capsys):
    with pytest.raises(AssertionError):
        parse("populora evaluate runs/tiny --membres T0", monkeypatch)
    assert "--membres" in capsys.readouterr().err


NOT_RUN = {
    r"paper_|one_gpu_(?!.*--dry-run)|cuda|my_adapter|my-model|Qwen/": "needs GPUs, weights or an endpoint",
    r"gsm8k|azr_full|--suite (code|sql|math)|evaluate table A|evaluate compare A|evaluate pairs RUN": "needs data or evaluations",
    r"populora (watch|retention|verify)": "serves until Ctrl-C, takes half an hour, or reads from standard input; their own tests run it",
    r"cluster\.|calculator": "needs Ray or an installed package; their own tests run it",
    r"train (tiny_azr|sql)|seed\*": "a longer run than a page's test may take",
}
"""Commands that are parsed only, and why."""
SMALL = ["--selfplay.prompts-per-type", "2", "--selfplay.rho-samples", "2", "--selfplay.seeds", "8", "--evaluation.every", "0"]
STEPS = ["--steps", "12"]
"""What makes a run of a page short: it does all that a run does, with fewer problems and steps."""


def is_planned(command: str) -> bool:
    return command.startswith("populora plan") or "--dry-run" in command


def run_python(page: Path) -> int:
    """Run a page's blocks of Python. A line with a value as its comment must have that value. Returns the number of such lines."""
    ran = 0
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE):
        code, count = re.subn(r'^( *)(\S.*)  # ("[^"]*"|True|False)$', r"\1assert (\2) == \3", block, flags=re.MULTILINE)
        exec(compile(code, page.name, "exec"), {})
        ran += count
    return ran


def test_a_value_that_a_page_tells_wrongly_is_noticed(tmp_path):
    (tmp_path / "page.md").write_text('```python\nx = 1\nif x:\n    str(x)  # "2"\n```\n')
    with pytest.raises(AssertionError):
        run_python(tmp_path / "page.md")


@pytest.mark.thorough
def test_commands_of_the_pages_work_in_an_empty_folder(monkeypatch, tmp_path, capsys):
    """Those of a page in its order, all in one folder. Getting started trains runs/tiny; the other runs that they name are there before."""
    monkeypatch.chdir(tmp_path)
    os.symlink(ROOT / "examples", "examples")
    for name in ("tiny_4t4s", "tiny_baseline"):
        assert main(["train", name, *SMALL, *STEPS]) == 0
    for seed in "01":
        shutil.copytree("runs/tiny_baseline", f"runs/baseline_{seed}", symlinks=True)
    for index, name in enumerate("abc"):
        assert main(["export", "runs/tiny_4t4s", "--member", f"S{index}", "-o", name]) == 0
    ran = 0
    for page in ("getting-started", "breed", "plan", "gpus", "report", "reproducibility", "evaluation"):
        for command in commands_of(ROOT / "docs" / f"{page}.md"):
            if not is_planned(command) and any(re.search(pattern, command) for pattern in NOT_RUN):
                continue
            _, name, *arguments = shlex.split(command, comments=True)
            if name == "train" and not {"--list", "--dry-run"} & {*arguments}:
                arguments += SMALL if "--steps" in arguments else [*SMALL, *STEPS]
            if name in ("breed", "export") and Path(arguments[-1]).exists():
                Path(arguments[-1]).rename(f"{arguments[-1]}-{ran}")
            code = main([name, *arguments])
            assert code == 0 or (name == "plan" and code == 1), f"{command}: {capsys.readouterr().err}"
            ran += 1
    assert ran >= 25
    assert load_config(Path("mine.toml")).population.teachers == 4
    Path("child").rename("child-of-a-command")
    for page in ("README.md", "docs/operators.md"):
        run_python(ROOT / page)
    assert Path("child/adapter_config.json").exists() and Path("dynamics.png").exists()


REPLACED = re.compile(r"^\|[^|]+\| `(\w+)\.(\w+)` \|[^|]+\|[^|]+\|$", re.MULTILINE)


def test_the_functions_of_the_method_that_a_page_names_are_called_through_their_modules():
    names = REPLACED.findall((ROOT / "docs/method.md").read_text("utf-8"))
    assert len(names) == 9
    for module, name in names:
        imported = importlib.import_module(f"populora.training.{module}")
        assert callable(getattr(imported, name)) and f"{name}(" in re.sub(rf"def {name}\(", "", inspect.getsource(imported)), (module, name)
        sources = {path.stem: path.read_text("utf-8") for path in (ROOT / "src/populora/training").glob("*.py")}
        importing = {other for other, source in sources.items() if re.search(rf"^from .* import .*\b{name}\b", source, re.MULTILINE)}
        assert importing <= {module}, "another module would go on with the package's own"


@pytest.mark.slow
@pytest.mark.usefixtures("short_steps")
def test_a_method_of_ones_own_trains_as_its_page_says(monkeypatch, tmp_path):
    for module, name in REPLACED.findall((ROOT / "docs/method.md").read_text("utf-8")):
        imported = importlib.import_module(f"populora.training.{module}")
        monkeypatch.setattr(imported, name, getattr(imported, name))  # as it is, but put back after the test
    monkeypatch.chdir(tmp_path)
    assert run_python(ROOT / "docs/method.md") == 1
    proposals = populora.load_run("runs/mine").table("proposals").to_pylist()
    solved = [row for row in proposals if row["rho"] is not None]
    assert solved and [row["reward"] for row in solved] == pytest.approx([1 - abs(2 * row["rho"] - 1) for row in solved])


@pytest.mark.slow
def test_the_verifiers_answers_are_those_that_its_page_tells():
    assert run_python(ROOT / "docs/verifier.md") == 8
