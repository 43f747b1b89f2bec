"""The notebooks under examples/ run, and what is stored in them has neither errors nor the paths of a machine.

``python tests/docs/test_notebooks.py`` executes them and stores their outputs, after a change of a notebook or of what it calls.
"""

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
import pytest
from matplotlib import pyplot
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook, new_output

import populora

FOLDER = Path(__file__).parents[2] / "examples" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
ABSOLUTE = re.compile(r"(?<![\w.*-])/(?:work|tmp|home|root|var|opt|usr|mnt|data|Users)\b|\b[A-Z]:\\\\")
"""The beginning of an absolute path, in JSON."""
IMAGE = re.compile(r'"image/png": "[^"]*"')
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)")
LARGEST = 400_000
"""Bytes of a notebook, figures included."""


def read_with(path: Path, **parameters: Any) -> nbformat.NotebookNode:
    """Read a notebook, with other values in its cell of parameters."""
    notebook = nbformat.read(path, as_version=4)
    (cell,) = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    cell.source += "".join(f"\n{name} = {value!r}" for name, value in parameters.items())
    return notebook


def execute(path: Path, folder: Path, **parameters: Any) -> nbformat.NotebookNode:
    """Execute a notebook in ``folder``, by a kernel. Raises ``CellExecutionError``."""
    notebook = read_with(path, **parameters)
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=None, record_timing=False, coalesce_streams=True, resources=resources).execute()
    return notebook


def join_output(cells: list[nbformat.NotebookNode], stream: str = "stdout") -> str:
    """Return all that cells of code have written to a stream."""
    outputs = [output for cell in cells if cell.cell_type == "code" for output in cell.outputs]
    return "".join(output.text for output in outputs if output.output_type == "stream" and output.name == stream)


def find_faults(path: Path) -> list[str]:
    """List the faults of a notebook as it is stored."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    faults = [f"cell {number} {fault}" for number, cell in enumerate(code, start=1) for fault in _faults_of_cell(cell, number)]
    text = json.dumps(notebook, ensure_ascii=False)
    faults += [f"the path {match.group()}" for match in ABSOLUTE.finditer(IMAGE.sub("", text))]
    links = [link for cell in notebook.cells if cell.cell_type == "markdown" for link in LINK.findall(cell.source)]
    faults += [f"a link to {link}" for link in links if not (path.parent / link).exists()]
    return faults if path.stat().st_size <= LARGEST else [*faults, f"{path.stat().st_size} bytes, expected at most {LARGEST}"]


def _faults_of_cell(cell: nbformat.NotebookNode, number: int) -> Iterator[str]:
    try:
        ast.parse(cell.source)
    except SyntaxError as error:
        yield f"does not parse: {error}"
    if cell.execution_count != number:
        yield f"was executed as number {cell.execution_count}"
    yield from (f"has {name} in its metadata" for name in cell.metadata if name != "tags")
    yield from (f"failed: {output.evalue}" for output in cell.outputs if output.output_type == "error")
    if warnings := join_output([cell], "stderr"):
        yield f"wrote to stderr: {warnings}"
    if any("image/png" in output.get("data", {}) for output in cell.outputs) and not join_output([cell]).startswith("Figure "):
        yield "has a figure without a description below it"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_stored_notebook_has_no_faults(path):
    assert find_faults(path) == []


def test_there_are_two_notebooks():
    assert [path.stem for path in NOTEBOOKS] == ["breed_two_adapters", "watch_a_population"]


def store(folder: Path, source: str, output: dict[str, Any]) -> Path:
    """Write a notebook of one cell with one output."""
    cell = new_code_cell(source, execution_count=1, outputs=[new_output(**output)])
    nbformat.write(new_notebook(cells=[cell]), folder / "a.ipynb")
    return folder / "a.ipynb"


PRINTED = {"output_type": "stream", "name": "stdout", "text": "0.5, a half and/or src/tmp/x"}


@pytest.mark.parametrize(
    ("source", "output", "fault"),
    [
        ("1 +", PRINTED, "does not parse: invalid syntax"),
        ("%matplotlib inline", PRINTED, "does not parse: invalid syntax"),
        ("f('/usr/run')", PRINTED, "the path /usr"),
        ("f()", {**PRINTED, "text": "in /tmp/tmpabc/run"}, "the path /tmp"),
        ("f()", {**PRINTED, "text": "'/home/me/run'"}, "the path /home"),
        ("f()", {**PRINTED, "text": "file:///mnt/run"}, "the path /mnt"),
        ("f()", {**PRINTED, "text": r"C:\Users\me"}, "the path C:"),
        ("f()", {**PRINTED, "name": "stderr"}, "wrote to stderr: 0.5"),
        ("f()", {"output_type": "error", "ename": "NameError", "evalue": "no f", "traceback": []}, "failed: no f"),
        ("f()", {"output_type": "display_data", "data": {"image/png": "/opt/"}}, "without a description"),
    ],
)
def test_a_fault_of_a_notebook_is_named(tmp_path, source, output, fault):
    assert find_faults(store(tmp_path, "1 / 2", PRINTED)) == []
    assert any(fault in named for named in find_faults(store(tmp_path, source, output)))


@pytest.fixture
def quiet_kernel(tmp_path, monkeypatch):
    """Keep the files of kernels out of the user's folders."""
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_adapters_are_bred_saved_and_loaded_by_peft(monkeypatch, capsys):
    """In this process, which has imported the libraries."""
    monkeypatch.setattr(pyplot, "show", lambda: pyplot.close("all"))
    cells = read_with(FOLDER / "breed_two_adapters.ipynb", STEPS=2).cells
    exec("\n".join(cell.source for cell in cells if cell.cell_type == "code"), {})
    text = capsys.readouterr().out
    assert text.count("as in the record: True") == 3
    assert "same seed, same child: True" in text and "other seed, same child: False" in text
    assert "loaded as it was saved: True" in text and "PEFT's delta equals alpha / rank times ours: True" in text
    assert "UserWarning: The parents' A have a cosine of" in text


@pytest.mark.slow
@pytest.mark.usefixtures("quiet_kernel")
def test_a_population_is_trained_and_watched(tmp_path):
    text = join_output(execute(FOLDER / "watch_a_population.ipynb", tmp_path, STEPS=3, PROMPTS=2, EVERY=2).cells)
    assert text.startswith("3 steps, ") and "Figure 4: " in text
    assert re.search(r"step   2  \w\d#1 = \w+  norm ratio", text)


@pytest.mark.thorough
@pytest.mark.usefixtures("quiet_kernel")
def test_a_run_without_children_is_watched_too(tmp_path):
    config = populora.load_config("tiny")
    selfplay, evaluation = replace(config.selfplay, prompts_per_type=2), replace(config.evaluation, every=0)
    populora.train(replace(config, steps=3, selfplay=selfplay, evaluation=evaluation), tmp_path / "run", verbose=False)
    text = join_output(execute(FOLDER / "watch_a_population.ipynb", tmp_path, RUN="run").cells)
    assert text.startswith("3 steps, ") and "for its parents: no child." in text and "Figure 4: " in text


if __name__ == "__main__":
    for notebook_path in NOTEBOOKS:
        nbformat.write(execute(notebook_path, FOLDER), notebook_path)
