"""``populora report``: one page from whatever a run has, figures as files, and one error for what is no run."""

import csv
import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from report_runs import AGENT, CONFIG, logged, write_run

from populora.cli.main import main
from populora.cli.report import read_study
from populora.report import figures as figures_module
from populora.report import page as page_module


@pytest.fixture(autouse=True)
def drawn_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures of the page are drawn but not rendered, which takes seconds; `test_a_whole_report` renders them."""
    monkeypatch.setattr(page_module, "svg", lambda figure: f"<svg>{len(figure.draw().axes)}</svg>")


@pytest.fixture
def make_run(tmp_path, make_record):
    return lambda name="run", config=CONFIG: write_run(tmp_path / name, make_record, config, 3)


def report(*arguments: object) -> int:
    return main(["report", *map(str, arguments)])


def page_of(capsys, *arguments: object) -> str:
    assert report(*arguments) == 0
    return Path(re.split(r"  \d", capsys.readouterr().out.splitlines()[0])[0]).read_text()


@pytest.mark.slow
def test_the_page_stands_in_the_run_or_where_it_is_told_to_and_is_written_anew(make_run, tmp_path, capsys):
    run = make_run()
    before = sorted(run.iterdir())
    assert report(run) == 0
    out, err = capsys.readouterr()
    assert re.fullmatch(rf"{run}/report\.html  0\.\d MB\n", out) and "Traceback" not in err
    assert sorted(run.iterdir()) == sorted([*before, run / "report.html"]), "nothing else is touched"
    page = (run / "report.html").read_text()
    (run / "report.html").write_text(older := page + "older")
    assert report(run, "-o", tmp_path / "mine.html") == 0 and (run / "report.html").read_text() == older
    assert report(run) == 0
    without_date = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d")
    assert {without_date.sub("", file.read_text()) for file in (run / "report.html", tmp_path / "mine.html")} == {
        without_date.sub("", page)
    }


@pytest.mark.slow
def test_a_whole_report_with_every_figure_in_every_kind(make_run, tmp_path, capsys, monkeypatch):
    monkeypatch.undo()
    kept = ("trueskill", "complexity", "samples")  # rendering all of them takes a minute
    make, names = figures_module.make_figures, (*kept, "retention_live")
    monkeypatch.setattr(figures_module, "make_figures", lambda study: [figure for figure in make(study) if figure.name in names])
    assert report(make_run(), "--figures", tmp_path / "deep" / "figures") == 0
    assert f"{tmp_path / 'deep' / 'figures'}/  12 files" in capsys.readouterr().out
    files = {file.name: file.read_bytes() for file in (tmp_path / "deep" / "figures").iterdir()}
    assert files.keys() == {f"{name}.{kind}" for name in kept for kind in ("svg", "png", "pdf", "csv")}
    assert all(files[f"{name}.png"].startswith(b"\x89PNG") and files[f"{name}.pdf"].startswith(b"%PDF") for name in kept)
    rows = list(csv.DictReader(io.StringIO(files["trueskill.csv"].decode())))
    expected = [str(line["rating/mu/T0"]) for line in logged(tmp_path / "run")]
    assert [row["value"] for row in rows if row["member"] == "T0"] == expected
    page = (tmp_path / "run" / "report.html").read_text()
    assert page.count("<svg") == 3 and "give the folder of <code>populora retention</code> with --retention DIR" in page


def test_options_of_the_figures_reach_them(make_run):
    study = read_study([make_run()], smooth=3, published=True)
    assert (study.smooth, study.published, study.retention, study.evaluations) == (3, True, None, ())


@pytest.mark.slow
def test_several_runs_and_their_baselines_are_arms(make_run, capsys):
    runs = [make_run("first"), make_run("second", replace(CONFIG, seed=1)), make_run("agent", AGENT)]
    page = page_of(capsys, *runs)
    assert "<title>populora: baseline (1 agent) and 2T+2S</title>" in page and "3 runs in 2 arms, up to step 3" in page
    assert "2T+2S: 2 runs, seeds 0, 1" in page and not (runs[1] / "report.html").exists()
    other = make_run("other", replace(CONFIG, selfplay=replace(CONFIG.selfplay, rho_samples=3)))
    page = page_of(capsys, runs[0], "--baseline", other, runs[2])
    assert "3 runs in 3 arms" in page and re.search(r"background:var\(--ink\)\"></span>2T\+2S \(selfplay.rho_samples 3\)", page)


def test_the_newest_evaluation_of_each_run_is_taken(make_run, assert_refused):
    run = make_run()
    for step in (2, 10):
        folder = run / "evaluations" / f"step_{step:05d}"
        folder.mkdir(parents=True)
        (folder / "evaluation.json").write_text("{")
    assert_refused(["report", str(run)], "step_00010/evaluation.json' is not valid JSON")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "is not a run directory: expected a 'config.json' in it"),
        (["RUN", "--baseline", "nowhere"], "is not a run directory"),
        (["RUN", "--baseline", "RUN"], "expected each run once"),
        (["RUN", "--smooth", "0"], "--smooth is 0: expected a number of steps"),
        (["RUN", "--evaluation", "nowhere"], "'nowhere' has no evaluation.json: expected a folder that `populora evaluate` wrote"),
        (["RUN", "--retention", "RUN/steps"], "has no config.json: expected a folder that `populora retention` wrote"),
        (["RUN", "--retention", "RUN"], "is no folder that `populora retention` wrote: unknown setting"),
        (["RUN", "--figures", "RUN/config.json"], "cannot write"),
    ],
)
def test_what_cannot_be_done_is_one_error(make_run, capsys, monkeypatch, words, message):
    monkeypatch.setattr(figures_module, "make_figures", lambda study: [])
    run = make_run()
    before = (run / "config.json").read_bytes()
    assert report(*(str(word).replace("RUN", str(run)) for word in words)) == 2
    err = capsys.readouterr().err
    assert message in err and "Traceback" not in err and (run / "config.json").read_bytes() == before


@pytest.mark.parametrize("out", [".", "RUN", "RUN/no/such/page.html"])
def test_a_page_that_cannot_be_written_is_refused_before_anything_is_drawn(make_run, capsys, monkeypatch, out):
    monkeypatch.setattr(figures_module, "make_figures", lambda study: pytest.fail("it draws"))
    run = make_run()
    out = out.replace("RUN", str(run))
    assert report(run, "-o", out) == 2
    assert f"--out is '{out}': expected a file in a folder that exists, such as report.html" in capsys.readouterr().err


def test_runs_that_were_read_as_baselines_are_asked_for_again(make_run, assert_refused):
    assert_refused(["report", "--baseline", str(make_run("agent", AGENT)), str(make_run())], "name the runs to report before it")
