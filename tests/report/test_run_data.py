"""A run's files are read as they were written; a run without a step is reported, a damaged file is an error."""

import math
import os

import pytest
from report_runs import CONFIG, logged, study_of, the_run

from populora.core.errors import RunDirectoryError
from populora.report.arms import arms_of
from populora.report.figure import MissingFigure
from populora.report.figures import make_figures
from populora.runs.directory import new_run


def test_logs_are_read_as_they_were_written(runs):
    run = the_run(runs["pair"])
    for index, line in enumerate(logged(runs["pair"])):
        values = {name: column[index] for name, column in run.metrics.columns.items() if not math.isnan(column[index])}
        assert {"step": run.metrics.steps[index], **values} == line
    assert run.timings.get("seconds/step").tolist() == [line["seconds/step"] for line in logged(runs["pair"], "timings.jsonl")]
    assert all(math.isnan(value) for value in run.metrics.get("no/such"))
    assert run.metrics.under("rating/mu") == ["S0", "S1", "T0", "T1", "student", "teacher"]


def test_damaged_files_are_errors(copied, tmp_path):
    folder = copied()
    (folder / "steps" / "step_00002" / "attempts.parquet").write_bytes(b"PAR1")
    with pytest.raises(RunDirectoryError, match=r"cannot read '.*attempts.parquet'.* remove its folder to leave the step out"):
        make_figures(study_of(folder))
    (folder / "metrics.jsonl").write_text("no JSON\n")
    with pytest.raises(RunDirectoryError, match="has a damaged line: Expecting value"):
        make_figures(study_of(folder))
    with pytest.raises(RunDirectoryError, match=r"is not a run directory: expected a 'config.json'"):
        arms_of([tmp_path / "absent"])


@pytest.mark.slow
def test_a_run_without_a_finished_step_is_reported_alone_and_with_others(tmp_path, runs, reported):
    with new_run(tmp_path / "empty", CONFIG, {"sandbox": "full"}):
        pass
    assert all(isinstance(figure, MissingFigure) for figure in make_figures(study_of(tmp_path / "empty")))
    assert "0 of 6" in reported(tmp_path / "empty")
    for text in (
        reported(tmp_path / "empty", runs["pair"], baselines=(runs["agent"],)),
        reported(runs["agent"], baselines=(tmp_path / "empty",)),
    ):
        assert "0 of 6" in text and 'id="dynamics" class="absent"' not in text


def test_a_step_that_is_being_written_is_not_read(copied, reported):
    folder = copied()
    os.rename(folder / "steps" / "step_00006", folder / "steps" / "step_00006.part")
    for name in ("metrics.jsonl", "timings.jsonl"):
        whole = (folder / name).read_bytes().splitlines(keepends=True)
        (folder / name).write_bytes(b"".join(whole[:-1]) + whole[-1][:30])
    run = the_run(folder)
    assert run.recorded == run.metrics.steps.tolist() == run.timings.steps.tolist() == [1, 2, 3, 4, 5]
    assert "5 of 6" in reported(folder)
