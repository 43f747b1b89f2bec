"""`populora evaluate` as a command: what it prints, writes and returns, alone and in its parts; stopped, refused, and in part."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from forked import forked
from served_model import served
from small_run import contents
from small_sources import CONFIG, advance, make_folder, running

from populora.cli.evaluate_compare import _read_arm as read_arm
from populora.cli.main import main
from populora.core.config import PopulationConfig, SelfplayConfig
from populora.core.files import digest
from populora.evals.benchmarks import BENCHMARKS
from populora.runs.directory import locked

FOUR = replace(CONFIG, population=PopulationConfig(2, 2), selfplay=SelfplayConfig(max_prompt_tokens=256, max_response_tokens=96))
SHORT = ("--limit", "4", "--max-tokens", "96")
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def populora(capfd) -> Command:
    """``populora(*arguments)``: exit code, standard output and standard error, of the grading process, too."""

    def run(*arguments: object) -> tuple[int, str, str]:
        capfd.readouterr()
        code = main(["evaluate", *map(str, arguments)])
        return (code, *capfd.readouterr())

    return run


@pytest.fixture(scope="module")
def adapters(tmp_path_factory) -> Path:
    """A folder with the adapters ``one`` and ``two`` of the tiny base."""
    folder = tmp_path_factory.mktemp("adapters")
    for seed, name in enumerate(("one", "two")):
        make_folder(folder / name, seed)
    return folder


@pytest.fixture(scope="module")
def finished(adapters, tmp_path_factory) -> Path:
    """The base and both adapters on a few items, by one command. To be left as it is."""
    folder = tmp_path_factory.mktemp("evaluations") / "finished"
    assert main(["evaluate", "tiny", str(adapters / "one"), str(adapters / "two"), *SHORT, "-o", str(folder)]) == 0
    return folder


@pytest.fixture
def copied(finished, tmp_path) -> Path:
    """A copy of it, to work on."""
    shutil.copytree(finished, tmp_path / "finished")
    return tmp_path / "finished"


@pytest.fixture
def run(tmp_path) -> Iterator[Path]:
    """A run after step 2, which goes on."""
    with running(tmp_path / "run", FOUR, 2) as folder:
        yield folder


@pytest.fixture
def data(tmp_path, monkeypatch) -> Path:
    """A folder with CRUXEval and GSM8K of two items each, for which this process has digests."""
    folder = tmp_path / "data"
    folder.mkdir()
    crux = [{"code": f"def f(x):\n    return x + {n}", "input": "3", "output": str(3 + n), "id": f"made_{n}"} for n in (1, 2)]
    files = {"cruxeval": crux, "gsm8k": [{"idx": n, "question": f"{n}+1?", "answer": f"#### {n + 1}"} for n in (1, 2)]}
    for name, items in files.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    for name, benchmark in list(BENCHMARKS.items()):
        if benchmark.file.removesuffix(".jsonl") in files:
            monkeypatch.setitem(BENCHMARKS, name, replace(benchmark, sha256=digest((folder / benchmark.file).read_bytes()), items=2))
    return folder


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def completions(folder: Path, source: str, benchmark: str = "tiny") -> list[dict]:
    return lines(folder / "generations" / benchmark / f"{source}.jsonl")


def verdicts(folder: Path, source: str, benchmark: str = "tiny") -> list[dict]:
    return lines(folder / "verdicts" / benchmark / f"{source}.jsonl")


def description(folder: Path) -> dict:
    return json.loads((folder / "evaluation.json").read_text())


def models(folder: Path) -> dict[str, str]:
    return {name: row["role"] for name, row in description(folder)["settings"]["models"].items()}


def test_one_command_generates_grades_and_tabulates(finished, populora):
    assert models(finished) == {"base": "base", "one": "adapter", "two": "adapter"}
    for source in ("base", "one", "two"):
        answers, grades = completions(finished, source), verdicts(finished, source)
        assert len(answers) == 4 and [row["item_id"] for row in answers] == [row["item_id"] for row in grades]
        assert all(row["prompt"] and row["finish_reason"] in ("stop", "length") and row["tokens"] <= 96 for row in answers)
        assert all(row["correct"] == row["modes"]["strict"] and bool(row["reason"]) != row["correct"] for row in grades)
        counts = json.loads((finished / "verdicts" / "tiny" / f"{source}.json").read_text())
        assert (counts["items"], counts["correct"]) == (4, sum(row["correct"] for row in grades))
        assert {"limits", "versions", "data_sha256"} <= counts["facts"].keys() and counts["machine"]["processor"]
    assert completions(finished, "one") != completions(finished, "base") != completions(finished, "two")
    evaluation = description(finished)
    assert evaluation["skipped"] == {} and evaluation["settings"]["benchmarks"]["tiny"]["items"] == 648
    (facts,) = evaluation["environments"]
    assert facts["versions"]["torch"] and facts["machine"]["cores"] == os.cpu_count() and facts["machine"]["device"] == "cpu"


def test_tables_are_printed_and_written_with_incomplete_scores_as_such(copied, populora):
    code, printed, errors = populora("table", copied)
    assert code == 0 and errors.startswith(f"populora evaluate: written to {copied}/downstream.md, ")
    right = sum(row["correct"] for row in verdicts(copied, "one"))
    assert f"{25 * right:.1f} (4/648)" in printed and "Adapter, mean of 2" in printed and "one on tiny 4/648" in printed
    rows = list(csv.DictReader((copied / "downstream.csv").read_text().splitlines()))
    (cell,) = [row for row in rows if (row["row"], row["column"], row["mode"]) == ("one", "tiny", "primary")]
    assert (float(cell["value"]), cell["counted"], cell["total"]) == (25 * right, "4", "648")
    assert "| one | " in (copied / "downstream.md").read_text() and r"\toprule" in (copied / "downstream.tex").read_text()
    code, printed, _ = populora("table", copied, copied, "--published", "-o", copied / "tables")
    assert code == 0 and "The paper's table has none of these benchmarks." in printed
    assert {path.name for path in (copied / "tables").iterdir()} == {f"downstream.{ending}" for ending in ("md", "tex", "csv")}


def test_generate_grade_and_table_do_what_evaluate_does(adapters, finished, tmp_path, populora):
    out = tmp_path / "finished"
    code, printed, errors = populora("generate", "tiny", adapters / "one", adapters / "two", *SHORT, "--out", out)
    assert (code, printed, errors) == (0, "", f"populora evaluate: completions are in {out}\n") and not (out / "verdicts").exists()
    code, _, errors = populora("table", out)
    assert code == 2 and f"nothing is graded in {out} yet: `populora evaluate grade {out}` does it" in errors
    code, printed, errors = populora("grade", out)
    assert code == 0 and errors == "" and len(printed.splitlines()) == 3 and "two on tiny: " in printed
    assert populora("table", out)[0] == 0
    assert contents(out) == contents(finished)


def test_the_same_command_again_does_nothing_and_another_adds_to_it_or_is_refused(copied, adapters, tmp_path, populora, monkeypatch):
    before, begun = contents(copied), ("generations/tiny/one.jsonl", "verdicts/tiny/one.jsonl")
    lines = {name: (copied / name).read_bytes() for name in begun}
    with monkeypatch.context() as patched:
        patched.setattr("populora.evals.generate.open_loaded", lambda *_: pytest.fail("a model was loaded"))
        assert populora("generate", "tiny", adapters / "one", adapters / "two", *SHORT, "-o", copied)[0] == 0
    assert populora("grade", copied)[0] == 0
    another = make_folder(tmp_path / "one", 7)
    for arguments, message in (
        ((another, *SHORT), "models.one.sha256"),
        (("tiny", "--limit", "9"), "max_tokens 96, and this one has 224"),
        ((adapters / "one", *SHORT, "--merge"), "merged False"),
    ):
        code, _, errors = populora("generate", *arguments, "-o", copied)
        assert code == 2 and message in errors
    with locked(copied):
        code, printed, errors = populora("grade", copied)
        assert (code, printed) == (2, "") and f"'{copied}' is in use by process {os.getpid()}. Wait for it" in errors
    assert contents(copied) == before
    assert populora("generate", adapters / "one", "--limit", "6", "--max-tokens", "96", "-o", copied)[0] == 0
    with (copied / "generations" / "tiny" / "two.jsonl").open("a") as file:
        file.write('{"item_id": 1\n')
    code, _, errors = populora("grade", copied)
    assert code == 1 and "two on tiny: line 5: no JSON" in errors
    after = contents(copied)
    for name in begun:
        longer = (copied / name).read_bytes()
        assert longer.startswith(lines[name]) and longer.count(b"\n") == 6
    assert all(after[name] == before[name] for name in before if "verdicts/tiny/two." in name or "/base." in name)


def test_members_of_a_run_are_evaluated_while_it_goes_on(run, populora):
    out = run / "evaluations" / "step_00002"
    code, _, errors = populora(run, "--limit", "2", "--members", "T0,S1")
    assert code == 0 and models(out) == {"T0": "teacher", "S1": "student"} and f"completions are in {out}" in errors
    assert all(row["tokens"] <= 96 for row in completions(out, "T0"))  # the run's limit
    assert populora("generate", run, "--limit", "2", "--members", "base")[0] == 0
    assert populora("generate", run, "--limit", "2")[0] == 0
    assert models(out) == {"T0": "teacher", "S1": "student", "base": "base", "T1": "teacher", "S0": "student"}
    assert populora("grade", out)[0] == 0
    _, printed, _ = populora("table", out)
    assert "Teacher, mean of 2" in printed and "Worst of 4†" in printed and "base " in printed
    code, printed, _ = populora("compare", f"{out}:students", f"{out}:teachers", f"{out}:base")
    assert code == 0 and "teachers" in printed


def test_an_earlier_step_is_evaluated_into_a_folder_of_its_own(run, populora):
    advance(run, FOUR, 4)
    for options, step in (((), 4), (("--step", "2"), 2)):
        assert populora("generate", run, "--limit", "1", "--members", "T0", *options)[0] == 0
        (model,) = description(run / "evaluations" / f"step_0000{step}")["settings"]["models"].values()
        assert model["step"] == step
    code, _, errors = populora("generate", run, "--step", "4", "--members", "T0", "-o", run / "evaluations" / "step_00002")
    assert code == 2 and "has T0 at step 2, and --step is 4: choose another folder with --out" in errors
    code, _, errors = populora("generate", run, "--step", "3")
    assert code == 2 and "has no checkpoint of step 3, but of 2, 4" in errors


def test_a_benchmark_that_cannot_be_had_is_named_and_the_rest_is_evaluated(data, tmp_path, populora):
    (data / "gsm8k.jsonl").write_text((data / "gsm8k.jsonl").read_text() + "\n")
    out, of = tmp_path / "out", ("--data", data, "--limit", "2", "--max-tokens", "64", "-o", tmp_path / "out")
    code, _, errors = populora("generate", "tiny", "--suite", "cruxeval,gsm8k,aime24", *of)
    assert code == 3 and f"skipped aime24: '{data}/aime24.jsonl' is not there" in errors
    assert f"skipped gsm8k: '{data}/gsm8k.jsonl' is not the pinned gsm8k: expected SHA-256" in errors
    assert list(description(out)["settings"]["benchmarks"]) == ["cruxeval_input", "cruxeval_output"]
    assert set(description(out)["skipped"]) == {"aime24", "gsm8k"}
    assert [len(completions(out, "base", name)) for name in description(out)["settings"]["benchmarks"]] == [2, 2]
    code, _, errors = populora("generate", "tiny", "--suite", "aime24", "--data", data, "-o", tmp_path / "none")
    assert code == 3 and "skipped aime24" in errors and not (tmp_path / "none").exists()


@pytest.mark.slow
def test_a_folder_is_graded_where_its_data_are_now(data, tmp_path, populora):
    out = tmp_path / "out"
    populora("generate", "tiny", "--suite", "cruxeval,tiny", "--data", data, "--limit", "2", "--max-tokens", "64", "-o", out)
    data.rename(tmp_path / "moved")
    code, printed, errors = populora("grade", out)
    assert code == 3 and f"skipped cruxeval_input: its data is not at '{data}/cruxeval.jsonl' any more: say with --data DIR" in errors
    assert "base on tiny: " in printed and "cruxeval" not in printed
    code, printed, _ = populora("grade", out, "--data", tmp_path / "moved")
    assert code == 0 and "base on cruxeval_output: " in printed and len(verdicts(out, "base", "cruxeval_input")) == 2
    (tmp_path / "moved" / "cruxeval.jsonl").write_text("")
    code, _, errors = populora("grade", out, "--data", tmp_path / "moved")
    assert code == 3 and "skipped cruxeval_output: '" in errors and "is not the pinned" in errors


def test_a_grader_that_is_not_installed_stops_before_the_first_completion(data, tmp_path, populora, monkeypatch):
    def without(packages=()):
        return dict.fromkeys(packages, "not installed")

    monkeypatch.setattr("populora.evals.grading.versions", without)
    code, _, errors = populora("tiny", "--suite", "gsm8k", "--data", data, "-o", tmp_path / "out")
    assert code == 2
    for part in ("grading gsm8k needs math-verify", "-m pip install math-verify==0.9.0", "`populora evaluate generate`"):
        assert part in errors
    assert "evalplus" not in errors and not (tmp_path / "out").exists()


@pytest.mark.parametrize(("part", "resumes"), [("pairs", False), ("generate", True)])
def test_ctrl_c_promises_to_resume_only_what_does(part, resumes, monkeypatch, capsys):
    def stop(arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"populora.cli.evaluate_{part}.main", stop)
    assert main(["evaluate", part]) == 130
    assert ("the same command resumes" in capsys.readouterr().err) is resumes


def test_the_items_of_a_comparison_are_those_that_its_models_were_judged_on(copied, populora):
    for file in copied.glob("verdicts/*/one.jsonl"):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        file.write_text("".join(json.dumps({**line, "void": index == 0}) + "\n" for index, line in enumerate(lines)))
    base, alone = (arm.sizes for arm, *_ in (read_arm(f"{copied}:{name}", "primary", list(BENCHMARKS)) for name in ("base", "one")))
    assert base and all(alone[name] == size - 1 for name, size in base.items())


def test_an_endpoint_is_evaluated(tmp_path, populora):
    with served() as server:
        server.reply = "I do not know"
        how = ("made/model 1", "--endpoint", server.url, "--key-variable", "", "--suite", "tiny", "--parallel", "2")
        code, printed, _ = populora(*how, "--limit", "3")
        first = completions(tmp_path / "evaluations" / "made--model--1", "made--model--1")[0]
        server.failing, server.reply = {first["prompt"]: 400}, ""
        in_part = populora(*how, "--limit", "3", "-o", tmp_path / "in_part")
        server.failing = {"": 401}
        refused, _, errors = populora(*how, "--limit", "4")
    out = tmp_path / "evaluations" / "made--model--1"
    assert code == 0 and "made--model--1 on tiny: 0 of 3 correct (0.0 %)" in printed
    assert models(out) == {"made--model--1": "base"} and [row["reason"] for row in verdicts(out, "made--model--1")] == ["format"] * 3
    assert refused == 2 and "failed at tiny, item '" in errors and "Completed items are kept" in errors
    assert len(server.requests) == 3 + 3 + 1
    assert in_part[0] == 0 and "the endpoint refused 1 items of tiny, such as " in in_part[2]
    assert len(verdicts(tmp_path / "in_part", "made--model--1")) == 2 and "(2/648)" in in_part[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tiny", "--suite", "maths"], "Did you mean 'math500'? Groups of them are code, math, cruxeval, sql, tiny, tiny_sql."),
        (["tiny", "--limit", "-1"], "--limit is -1: expected 0 or more"),
        (["tiny", "--max-tokens", "many"], "expected an integer, got 'many'"),
        (["tiny", "--workers", "0"], "--workers is 0: expected 1 or more"),
        (["tiny", "--backend", "gpu"], "`populora evaluate --help` lists what is possible."),
        (["tiny", "--templates", "code"], "--templates has 'code': expected BENCHMARK=TEMPLATE or GROUP=TEMPLATE"),
        (["tiny", "--templates", "cod=plain"], "--templates has 'cod=plain': expected"),
        (["tiny", "--templates", "code=plain"], "--templates has 'code=plain', but --suite has no such benchmark: leave it out"),
        (["tiny", "--data", "nowhere", "--suite", "code"], "--data is 'nowhere': expected a folder with the benchmarks' files"),
        (["tiny", "--chat"], "--chat is for an endpoint (--endpoint URL): leave it out"),
        (["x", "--endpoint", "http://x", "--merge"], "--merge is for models that are loaded here, not for an endpoint's: leave it"),
        (["x", "--endpoint", "http://x", "--step", "1"], "--step is for models that are loaded here, not for an endpoint's: leave it"),
        (["x", "y", "--endpoint", "http://x"], "with --endpoint expected the name of one model there, got x, y"),
        (["generate", "tiny", "--published"], "Unrecognized options: --published. `populora evaluate generate --help`"),
        (["generate", "tiny", "--limit", "1", "--out", "notes"], "'notes' is not empty (it has 'mine.txt') and is not an evaluation"),
        (["grade"], "expected the folder of an evaluation, or BENCH COMPLETIONS.jsonl --out VERDICTS.jsonl"),
        (["grade", "."], "'.' is not an evaluation: expected 'evaluation.json' in it"),
        (["grade", ".", "--out", "x"], "--out and --completion-is-solution are for a file of completions"),
        (["grade", "gsm8k", "x.jsonl", "--completion-is-solution", "--out", "v"], "is for code benchmarks, gsm8k is none"),
        (["table"], "expected the folder of an evaluation"),
        (["compare", "."], "expected two or more evaluations, or parts of one"),
    ],
)
def test_impossible_arguments_are_refused_with_one_message(arguments, message, tmp_path, populora):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").touch()
    code, printed, errors = populora(*arguments)
    assert (code, printed) == (2, "") and message in errors and len(errors.splitlines()) == 1 and errors.startswith("populora: error: ")
    assert not list(tmp_path.rglob("evaluation.json"))


def test_comparisons_are_printed_and_written_and_unknown_names_are_refused(finished, tmp_path, populora):
    files = []
    for out in (tmp_path / "out", tmp_path / "again"):
        code, printed, _ = populora("compare", f"{finished}:base", f"{finished}:one,two", "--seed", "1", "-o", out)
        assert code == 0 and "p (Holm)" in printed and f"{finished}:base" in (out / "comparison.csv").read_text()
        files.append(contents(out))
    assert files[0] == files[1] and set(files[0]) == {f"comparison.{ending}" for ending in ("md", "tex", "csv")}
    code, _, errors = populora("compare", f"{finished}:base", f"{finished}:three")
    assert code == 2 and f"'{finished}' has no model 'three': expected some of base, bases, one, adapters, two" in errors
    code, _, errors = populora("compare", f"{finished}:base", f"{finished}:one", "--mode", "kind")
    assert code == 2 and f"'{finished}' has no extraction mode 'kind': expected one of primary, strict, lenient" in errors


@pytest.mark.parametrize("part", [(), ("generate",), ("grade",), ("table",), ("compare",)])
def test_help_explains_every_option_once(part, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["evaluate", *part, "--help"])
    text = capsys.readouterr().out
    assert ended.value.code == 0 and text.startswith(f"usage: populora {' '.join(('evaluate', *part))} ")
    assert not any(odd in text for odd in ("default: )", "default: ''", "default: None", "STR", "{None}", "--no-", "{,"))


@pytest.mark.slow
def test_grading_tables_and_comparisons_load_no_torch(copied):
    code = (
        "import sys\nfrom populora.cli.main import main\n"
        f"codes = [main(['evaluate', *arguments]) for arguments in (['grade', {str(copied)!r}], ['table', {str(copied)!r}],"
        f" ['compare', {f'{copied}:one'!r}, {f'{copied}:two'!r}])]\n"
        "heavy = sorted({'torch', 'transformers', 'peft', 'openai', 'vllm'} & sys.modules.keys())\n"
        "sys.exit(f'{codes} {heavy}' if any(codes) or heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


class Stopped:
    """A command that is sent a signal, with its whole process group, as soon as a file has more than so many lines."""

    def __init__(self, number: int, file: Path, more_than: int, *arguments: object):
        wrote_enough = partial(_has_more_lines, file, more_than)
        with forked("evaluate", *arguments, ready=wrote_enough, out="printed", errors="errors") as process:
            assert process.pid
            os.killpg(process.pid, number)
            process.join(300)
        self.printed, self.errors = (Path(name).read_text() for name in ("printed", "errors"))
        self.code, self.left = process.exitcode, len(lines_so_far(file))


def _has_more_lines(file: Path, than: int) -> bool:
    return len(lines_so_far(file)) > than


def lines_so_far(file: Path) -> list[bytes]:
    return file.read_bytes().split(b"\n")[:-1] if file.exists() else []


@pytest.mark.slow
def test_a_stopped_or_killed_evaluation_resumes_bit_identically(adapters, tmp_path, populora):
    command, out = [adapters / "one", "--limit", "100", "--max-tokens", "96"], tmp_path / "stopped" / "e"
    answers, grades = out / "generations" / "tiny" / "one.jsonl", out / "verdicts" / "tiny" / "one.jsonl"
    goes_on = "populora evaluate: stopped; what is done is kept, and the same command resumes\n"

    killed = Stopped(signal.SIGKILL, answers, 2, *command, "--cache-mb", "1", "-o", out)  # few rows at a time: it takes a while
    assert killed.code == -signal.SIGKILL and 2 < killed.left < 100 and not grades.exists()
    interrupted = Stopped(signal.SIGINT, answers, killed.left + 2, *command, "--cache-mb", "1", "-o", out)
    assert (interrupted.code, interrupted.printed, interrupted.errors) == (130, "", goes_on)
    assert killed.left < interrupted.left < 100 and models(out) == {"one": "adapter"}

    interrupted = Stopped(signal.SIGINT, grades, 2, *command, "--workers", "1", "-o", out)
    assert (interrupted.code, interrupted.printed) == (130, "") and 2 < interrupted.left < 100
    assert interrupted.errors == f"populora evaluate: completions are in {out}\n{goes_on}"
    killed = Stopped(signal.SIGKILL, grades, interrupted.left + 2, "grade", out, "--workers", "1")
    assert killed.code == -signal.SIGKILL and interrupted.left < killed.left < 100

    assert populora(*command, "-o", out)[0] == 0
    whole = tmp_path / "undisturbed" / "e"
    assert populora(*command, "-o", whole)[0] == 0
    assert contents(out) == contents(whole) and len(verdicts(whole, "one")) == 100
