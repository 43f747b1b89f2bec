"""Reports of runs of SQL, of Python and SQL, and of runs of different domains: complete, and each domain apart, against logs and tables."""

import json
import re
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
from report_pages import blobs
from report_runs import AGENT, MIXED, figure_of, logged, study_of, table, the_run, write_run

from populora.domains.registry import load_domain
from populora.report.arms import arms_of
from populora.report.explorer import sample_problems
from populora.report.figure import Figure, MissingFigure
from populora.report.figures import make_figures
from populora.report.figures.arm_comparison import comparison_figure
from populora.report.figures.coverage import coverage_figure
from populora.report.figures.failure_reasons import reasons_figure
from populora.report.figures.panel_specs import complexity_figure
from populora.report.figures.sampled_programs import samples_figure
from populora.report.page import page
from populora.runs.step_columns import schema_of

MEASURES = {"python": ("ast_depth", "cyclomatic", "loc", "variables"), "sql": ("joins", "nesting", "clauses", "columns")}
MEMBERS = ("T0", "T1", "S0", "S1")


def made(*folders: Path) -> dict[str, Figure | MissingFigure]:
    return {figure.name: figure for figure in make_figures(study_of(*folders))}


def values(figure: Figure | MissingFigure) -> dict[tuple[str, str, str, int], float]:
    assert isinstance(figure, Figure), figure
    rows = {(row["run"], row["metric"], row["member"], row["step"]): row["value"] for row in figure.rows}
    assert len(rows) == len(figure.rows)
    return rows


def expected(folder: Path, metric: str, ending: str) -> dict[tuple[str, str, str, int], float]:
    """The metric of the whole run and of its members, with such an ending, from the log."""
    names = {"all": metric + ending, **{member: f"{metric}/{member}{ending}" for member in MEMBERS}}
    return {
        (folder.name, metric + ending, member, int(line["step"])): line[name]
        for line in logged(folder)
        for member, name in names.items()
        if name in line
    }


def test_the_caption_of_the_complexity_figure_says_what_each_metric_of_the_domain_counts():
    written = "Means over the valid programs that were written in the step (kind f is given its program). "
    assert complexity_figure("python").meaning == (
        f"{written}AST depth: levels under the module. "
        "Cyclomatic: 1 + if, elif, for, while, except, and, or, assert and comprehensions' for. "
        "Lines with code. Variables: names bound."
    )
    meanings = [metric.meaning for metric in load_domain("sql").metrics]
    assert all(meanings) and complexity_figure("sql").meaning == written + " ".join(meanings)


def test_a_run_of_sql_alone_has_the_figures_of_a_run_of_python_alone(runs):
    ours, pythons = made(runs["sql"]), made(runs["pair"])
    assert {name: type(figure) for name, figure in ours.items()} == {name: type(figure) for name, figure in pythons.items()}
    assert values(ours["complexity"]) == {
        key: value for name in MEASURES["sql"] for key, value in expected(runs["sql"], f"teacher/{name}", "").items()
    }
    titles = [axis.get_title(loc="left") for axis in figure_of(lambda _: ours["dynamics_per_type"], study_of(runs["sql"])).draw().axes]
    assert titles == [f"sql_{kind}: {title}" for kind in "iof" for title in ("solve rate", "validity")]


@pytest.mark.parametrize("domain", ["python", "sql"])
def test_each_domain_of_a_mixed_run_has_its_own_curves(runs, domain):
    figures = made(runs["mixed"])
    panels = {
        "dynamics": ("student/solve_rate", "student/format_rate", "teacher/difficulty", "teacher/validity"),
        "complexity": [f"teacher/{name}" for name in MEASURES[domain]],
        "coverage": ("archive/coverage", "archive/proxy", "archive/distinct_descriptors", "archive/total_problems"),
    }
    for name, metrics in panels.items():
        ours = {key: value for metric in metrics for key, value in expected(runs["mixed"], metric, f"/{domain}").items()}
        assert ours and values(figures[f"{name}_{domain}"]) == ours
        assert name == "dynamics" or name not in figures, "a mean over domains would mean nothing"
    assert {figure.domain for name, figure in figures.items() if name.endswith(f"_{domain}")} == {domain}


def test_every_type_of_a_mixed_run_has_its_panels(runs):
    figures, tasks = made(runs["mixed"]), [f"{prefix}_{kind}" for prefix in ("code", "sql") for kind in "iof"]
    for name, metrics in (
        ("solve_rate_by_type", ["student/solve_rate"]),
        ("dynamics_per_type", ["student/solve_rate", "teacher/validity"]),
    ):
        ours = [expected(runs["mixed"], metric, f"/{task}") for metric in metrics for task in tasks]
        assert values(figures[name]) == {key: value for of_panel in ours for key, value in of_panel.items()}
        assert len(figure_of(lambda _, name=name: figures[name], study_of(runs["mixed"])).draw().axes) == len(ours)


def test_where_the_ratings_come_from_is_the_mean_over_the_matchups_of_the_table(runs):
    rows = values(made(runs["mixed"])["rating_sources"])
    for step in range(1, 7):
        played = [row for row in table(runs["mixed"], "matchups", step) if row["outcome"] != "none"]
        for domain in ("python", "sql"):
            counts, rhos = [row[f"problems_{domain}"] for row in played], [row[f"mean_rho_{domain}"] for row in played]
            rhos = [rho for rho in rhos if rho is not None]
            assert rows["mixed", f"matchup/problems/{domain}", "all", step] == sum(counts) / len(counts)
            assert rows["mixed", f"matchup/mean_rho/{domain}", "all", step] == pytest.approx(sum(rhos) / len(rhos))
            of_domain = [row for row in table(runs["mixed"], "proposals", step) if row["rho"] is not None and is_of(row["task"], domain)]
            assert sum(counts) == len(of_domain)


def is_of(task: str, domain: str) -> bool:
    return task.startswith({"python": "code_", "sql": "sql_"}[domain])


def test_beside_a_run_of_python_alone_a_mixed_one_is_compared_by_domain(runs):
    figures = made(runs["mixed"], runs["pair"])
    both = {key for name in MEASURES["python"] for key in expected(runs["pair"], f"teacher/{name}", "")}
    assert both <= values(figures["complexity_python"]).keys() and "mixed" in {key[0] for key in values(figures["complexity_python"])}
    assert {key[0] for key in values(figures["complexity_sql"])} == {"mixed"}
    compared = figure_of(comparison_figure, study_of(runs["mixed"], runs["mixed-1"], runs["pair"], runs["pair-1"]))
    metrics = {row["metric"] for row in compared.rows}
    assert {"teacher/loc/python", "student/solve_rate/python", "archive/coverage/python", "held_out/accuracy/python"} <= metrics
    assert not any(metric.endswith("/sql") for metric in metrics) and "teacher/joins/sql" in compared.definition
    ends = {row["arm"]: float(row["values"].split()[0]) for row in compared.rows if row["metric"] == "teacher/loc/python"}
    lines = [logged(runs["mixed"])[-1]["teacher/loc/python"], logged(runs["pair"])[-1]["teacher/loc"]]
    assert list(ends) == ["2T+2S (domains python+sql)", "2T+2S (domains python)"]
    assert list(ends.values()) == pytest.approx(lines, rel=1e-5)
    assert compared.draw()


def test_who_solves_whose_problems_is_apart_by_domain(runs):
    figures = made(runs["mixed"])
    for domain, kept in (("python", "code_"), ("sql", "sql_"), ("", "")):
        correct = defaultdict(list)
        for row in table(runs["mixed"], "attempts"):
            if not row["void"] and not row["filled"] and row["task"].startswith(kept):
                end = next(end for end in (2, 3, 4, 5, 6) if row["step"] <= end)
                correct[end, row["student"], row["author"]].append(row["correct"])
        figure = figures["cross_evaluation" + (f"_{domain}" if domain else "")]
        rates = {(row["snapshot"], row["student"], row["teacher"]): (row["solve_rate"], row["attempts"]) for row in figure.rows}
        assert rates == {key: (pytest.approx(fmean(solved)), len(solved)) for key, solved in correct.items()}


def test_recorded_pairs_of_two_domains_are_drawn_apart_and_together(copied):
    folder = copied("mixed")
    (folder / "pairs").mkdir()
    header = "snapshot,domain,student,teacher,solve_rate,attempts"
    (folder / "pairs" / "step_00004.csv").write_text(f"{header}\n4,python,S0,T0,0.5,8\n4,python,S1,T0,0.25,8\n4,sql,S0,T0,1.0,4\n")
    figures = made(folder)
    rates = {
        name: {(row["student"], row["teacher"]): (row["solve_rate"], row["attempts"]) for row in figures[name].rows}
        for name in ("cross_evaluation", "cross_evaluation_python", "cross_evaluation_sql")
    }
    assert rates["cross_evaluation_sql"] == {("S0", "T0"): (1.0, 4)}
    assert rates["cross_evaluation_python"] == {("S0", "T0"): (0.5, 8), ("S1", "T0"): (0.25, 8)}
    assert rates["cross_evaluation"] == {("S0", "T0"): (pytest.approx(8 / 12), 12), ("S1", "T0"): (0.25, 8)}


def test_reasons_are_apart_by_domain_and_recounted(runs):
    figure = figure_of(reasons_figure, study_of(runs["mixed"], runs["sql"]))
    shares = {(row["run"], row["domain"], row["side"], row["reason"], row["step"]): row["share"] for row in figure.rows if row["share"]}
    ours: dict[tuple, float] = {}
    for run, domain in (("mixed", "python"), ("mixed", "sql"), ("sql", "sql")):
        for step in range(1, 7):
            proposals = [row for row in table(runs[run], "proposals", step) if is_of(row["task"], domain)]
            attempts = [row for row in table(runs[run], "attempts", step) if is_of(row["task"], domain)]
            counted = [row for row in attempts if not row["void"] and not row["filled"]]
            for side, rows, reasons in (
                ("proposals rejected", proposals, [row["rejection"] for row in proposals if not row["valid"]]),
                ("answers failed", counted, [row["reason"] for row in counted if not row["correct"]]),
            ):
                for reason, count in Counter(":".join(reason.split(":")[:2]) for reason in reasons).items():
                    ours[run, domain, side, reason, step] = count / len(rows)
    assert shares == pytest.approx(ours)
    assert len(figure.draw().axes) == 2 * 3


def test_sampled_programs_are_those_of_one_domain_by_its_own_measures(runs):
    for run in ("mixed", "sql"):
        figure = figure_of(lambda study: samples_figure(study, "sql"), study_of(runs[run]))
        assert len(figure.rows) > 3 and "at most 14 clauses, the median by nesting, then clauses, then joins" in figure.definition
        for row in figure.rows:
            step = [
                other for other in table(runs[run], "proposals", row["step"]) if is_of(other["task"], "sql") and other["rho"] is not None
            ]
            order = sorted((other["nesting"], other["clauses"], other["joins"]) for other in step if other["clauses"] <= 14)
            ours = (row["nesting"], row["clauses"], row["joins"])
            assert row["program"].startswith("SELECT") and set(MEASURES["sql"]) < row.keys() and "loc" not in row
            assert ours == (order[0] if row["kind"] == "most trivial" else order[(len(order) - 1) // 2])
        assert all("clauses" in axis.texts[0].get_text() for axis in figure.draw().axes if axis.texts)


def test_a_long_statement_is_drawn_whole(tmp_path, make_record):
    statement = " UNION ".join(["SELECT a FROM t"] * 20)
    run = write_run(tmp_path / "run", make_record, replace(MIXED, domains=("sql",)), steps=1, program=statement)
    figure = figure_of(lambda study: samples_figure(study, "sql"), study_of(run))
    drawn = [text.get_text() for axis in figure.draw().axes for text in axis.texts]
    assert statement in [text.replace("\n", " ") for text in drawn] and max(len(line) for text in drawn for line in text.split("\n")) < 90


def test_entries_of_the_explorer_have_the_measures_and_words_of_their_domain(runs):
    sample = sample_problems(the_run(runs["mixed"]), 10**7)
    assert sample["tasks"]["sql_f"] == {"asks": "program", "call": "{inputs}", "measures": {name: name for name in MEASURES["sql"]}}
    assert sample["tasks"]["code_i"]["call"] == "f({inputs})" and list(sample["tasks"]["code_i"]["measures"]) == list(MEASURES["python"])
    rows = {row["problem_id"]: row for row in table(runs["mixed"], "proposals") if row["valid"]}
    entries = [entry for entry in sample["entries"] if "program" in entry]
    assert {entry["task"] for entry in entries} == sample["tasks"].keys() and len(entries) == len(rows)
    for entry in entries:
        ours, theirs = ("python", "sql") if entry["task"].startswith("code_") else ("sql", "python")
        assert {name: entry[name] for name in MEASURES[ours]} == {name: rows[entry["id"]][name] for name in MEASURES[ours]}
        assert not set(MEASURES[theirs]) & entry.keys()


@pytest.mark.slow
def test_every_figure_of_a_mixed_study_says_what_it_is_and_has_equal_rows(runs):
    for figure in made(runs["mixed"], runs["mixed-1"], runs["sql"]).values():
        if isinstance(figure, MissingFigure):
            continue
        assert figure.definition.endswith(".") and len(figure.definition) > 60, figure.name
        assert figure.rows and len({tuple(row) for row in figure.rows}) == 1, figure.name
        for name, columns in (part.split(".parquet: ") for part in figure.source.split("; ") if ".parquet: " in part):
            known = set(schema_of(name, ["python", "sql"]).names)
            assert columns.startswith("all columns") or {column.strip() for column in columns.split(",")} <= known
        assert figure.draw()


@pytest.mark.slow
def test_the_page_has_a_section_for_each_of_several_domains(runs, reported):
    html = reported(runs["mixed"])
    assert "up to step 6, 2 domains: python, sql" in html
    sections = html.split("<section ")
    for domain, other in (("python", "sql"), ("sql", "python")):
        (section,) = [part for part in sections if re.search(rf'id="group-\d">The domain {domain}</h2>', part)]
        assert f'<figure id="complexity_{domain}"' in section and f"_{other}" not in section
    assert {f"csv-{name}_sql" for name in ("complexity", "coverage", "samples", "dynamics")} <= blobs(html).keys()
    assert "The domain" not in reported(runs["sql"]) and "1 domain: sql" in reported(runs["sql"])
    assert "domain" not in reported(runs["pair"]).partition("</header>")[0]


@pytest.mark.slow
def test_a_domain_without_valid_problems_is_said_at_the_top(runs, tmp_path, make_record):
    def header(*folders):
        return page(study_of(*folders), []).partition("</header>")[0]

    sentence = "No valid problem of sql in 6 steps, the whole run."
    assert f"<p>{sentence}</p>" in header(runs["lost"])
    assert f"<p>lost: {sentence}</p>" in header(runs["mixed"], runs["lost"]), "also of another run"
    agent = write_run(tmp_path / "agent", make_record, replace(AGENT, domains=("python", "sql")), lost="sql")
    assert f"<p>{sentence}</p>" in header(agent), "also without a population"
    assert "No valid problem" not in header(runs["mixed"], runs["sql"])


@pytest.mark.slow
def test_figures_of_a_domain_without_valid_problems_say_why_they_are_missing(runs):
    figures = made(runs["lost"])
    missing = figures["complexity_sql"]
    assert isinstance(missing, MissingFigure) and missing.reason.endswith("of sql: none of its problems was valid")
    assert isinstance(figures["samples_sql"], MissingFigure) and isinstance(figures["complexity_python"], Figure)
    rejected = {row["reason"] for row in figure_of(lambda _: figures["reasons"], study_of(runs["lost"])).rows if row["domain"] == "sql"}
    assert rejected == {"format", "out_of_resources", "error:exception"}
    validity = {key[3]: value for key, value in values(figures["dynamics_sql"]).items() if key[1:3] == ("teacher/validity/sql", "all")}
    assert validity == dict.fromkeys(range(1, 7), 0.0)


def test_tessellations_are_compared_domain_by_domain(copied):
    digests = {"pair": "aa", "mixed": "aa, bb", "mixed-1": "aa, cc"}
    folders = [copied(name) for name in digests]
    for folder, digest in zip(folders, digests.values(), strict=True):
        facts = json.loads((folder / "run.json").read_text())
        (folder / "run.json").write_text(json.dumps({**facts, "tessellation_sha256": digest}))
    study = study_of(*folders)
    for domain, differ in (("python", False), ("sql", True)):
        figure = figure_of(lambda study, domain=domain: coverage_figure(study, domain), study)
        assert ("DIFFERENT TESSELLATIONS" in figure.definition) == differ


def test_runs_of_other_domains_are_other_arms(runs):
    arms = [(arm.label, [run.name for run in arm.runs]) for arm in arms_of([runs["mixed"], runs["sql"], runs["mixed-1"]])]
    assert arms == [("2T+2S (domains python+sql)", ["mixed", "mixed-1"]), ("2T+2S (domains sql)", ["sql"])]
