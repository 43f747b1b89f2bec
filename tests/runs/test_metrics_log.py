"""Records and logs of a step: they come back as written, equal steps give equal bytes, a resume cuts back what is beyond it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from populora.core.config import Config
from populora.core.errors import RunDirectoryError
from populora.core.types import Lineage
from populora.runs.metrics_log import read_log, truncate_logs, write_step
from populora.runs.step_columns import SCHEMAS, schema_of
from populora.runs.step_record import Evolution
from populora.runs.tables import read_table, recorded_steps, write_records

CONFIG = replace(Config(), checkpoint_every=2, keep_checkpoints=2)


def folder_bytes(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_matchups_of_several_domains_say_where_their_result_comes_from(tmp_path, make_mixed_record):
    write_records(tmp_path, make_mixed_record(1))
    table = read_table(tmp_path, "matchups")
    assert table.schema == schema_of("matchups", ["python", "sql"])
    names = ("mean_rho_python", "problems_python", "mean_rho_sql", "problems_sql")
    assert [tuple(row[name] for name in names) for row in table.to_pylist()] == [(0.25, 2, 1.0, 1), (None, 0, None, 0)]
    assert read_table(tmp_path, "matchups", columns=["mean_rho_sql", "step"]).to_pydict() == {"mean_rho_sql": [1.0, None], "step": [1, 1]}


def test_a_matchup_s_domains_add_up_to_its_mean_rho(tmp_path, make_mixed_record):
    rhos = (0.5, 0.75, 0.25, 1.0, None, None)
    write_records(tmp_path, make_mixed_record(1, rhos=rhos))
    for row, mean in zip(read_table(tmp_path, "matchups").to_pylist(), (0.5, 1.0), strict=True):
        parts = [(row[f"mean_rho_{domain}"] or 0.0, row[f"problems_{domain}"]) for domain in ("python", "sql")]
        assert sum(rho * count for rho, count in parts) / sum(count for _, count in parts) == mean


def test_a_column_that_no_domain_of_the_run_has_is_an_error(tmp_path, make_record):
    write_records(tmp_path, make_record(1))
    for name, column in (("proposals", "joins"), ("matchups", "mean_rho_python")):
        with pytest.raises(RunDirectoryError, match=column):
            read_table(tmp_path, name, columns=["step", column])


def test_records_come_back_as_they_were(tmp_path, make_record):
    child = replace(make_record().members[1], lineage=Lineage("T1", generation=2, born=1), protected_until=5)
    record = make_record(3, teacher_rewards=(0.5, 0.0, 0.0, None, -1.0, -1.0), members=(make_record().members[0], child))
    write_records(tmp_path, record)
    proposals = read_table(tmp_path, "proposals").to_pylist()
    assert [row["rho"] for row in proposals] == [0.5, 1.0, 0.0, None, None, None]
    assert [row["reward"] for row in proposals] == [0.5, 0.0, 0.0, None, -1.0, -1.0]
    assert proposals[0]["loc"] == 2 and proposals[0]["fingerprint"] == "a"
    assert proposals[4]["rejection"] == "format" and proposals[4]["problem_id"] is None and not proposals[4]["stopped"]
    assert [row["advantage"] for row in proposals] == [1.5, 0.5, 0.25, 0.0, -1.25, -1.0]
    assert proposals[0]["response_tokens"] == 10 and proposals[0]["prompt_tokens"] == 3 and proposals[0]["mean_logprob"] == -0.5
    attempts = read_table(tmp_path, "attempts").to_pylist()
    assert attempts[1]["reason"] == "format" and attempts[1]["reward"] == -1.0
    assert attempts[6]["void"] and not attempts[6]["trained"] and attempts[6]["advantage"] is None
    assert attempts[7]["filled"] and attempts[7]["author"] == "seed"
    assert read_table(tmp_path, "matchups").to_pylist()[1]["mean_rho"] is None
    first, second = read_table(tmp_path, "ratings").to_pylist()
    assert first["mu"] == 27.0 and (second["generation"], second["born"], second["protected_until"]) == (2, 1, 5)
    child = read_table(tmp_path, "children").to_pylist()[0]
    assert child["parents"] == ["T0#0:ab", "T1#0:cd"] and child["cosines"] == [0.9, 0.4] and child["basis_cosine"] == 0.8
    assert json.loads(child["stream"]) == ["evolve", 3, "T1"]


def test_every_problem_that_is_named_has_its_content(tmp_path, make_record):
    write_records(tmp_path, make_record(3))
    problems = {row["problem_id"]: row for row in read_table(tmp_path, "problems").to_pylist()}
    named = {row["problem_id"] for name in ("proposals", "attempts") for row in read_table(tmp_path, name).to_pylist()} - {None}
    assert set(problems) == named == {"3-0", "3-1", "3-2", "3-3", "0-old"}
    assert problems["3-2"]["hidden"] == [{"inputs": "2", "output": "4"}] and problems["3-2"]["message"] == "doubles"
    assert problems["0-old"]["born"] == 0 and problems["0-old"]["step"] == 3


def test_empty_step_keeps_its_schemas(tmp_path, make_record):
    per_row = ("proposals", "teacher_rewards", "teacher_advantages", "rhos", "attempts", "student_rewards", "student_advantages", "trained")
    write_step(tmp_path, make_record(1, **dict.fromkeys((*per_row, "matchups"), ()), evolution=Evolution()))
    assert all(read_table(tmp_path, name).schema == schema_of(name, ["python"]) for name in SCHEMAS)


def test_text_that_utf8_lacks_is_kept_as_an_escape(tmp_path, make_record):
    record = make_record(1)
    broken = record.attempts[0]._replace(generation=replace(record.attempts[0].generation, text="a\ud800\x00b"))
    write_records(tmp_path, make_record(1, attempts=(broken, *record.attempts[1:])))
    assert read_table(tmp_path, "attempts").to_pylist()[0]["text"] == "a\\ud800\x00b"


def test_steps_are_chosen_and_unfinished_ones_ignored(tmp_path, make_record):
    for step in (1, 2, 10):
        write_records(tmp_path, make_record(step))
    (tmp_path / "steps" / "step_00011.part").mkdir()
    assert recorded_steps(tmp_path) == [1, 2, 10]
    assert set(read_table(tmp_path, "ratings", [2, 10]).column("step").to_pylist()) == {2, 10}
    with pytest.raises(RunDirectoryError, match="no record of step 11: it holds steps 1 to 10"):
        read_table(tmp_path, "ratings", [11])


def test_damaged_table_is_named(tmp_path, make_record):
    write_records(tmp_path, make_record(1))
    file = tmp_path / "steps" / "step_00001" / "attempts.parquet"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(RunDirectoryError, match=r"attempts\.parquet"):
        read_table(tmp_path, "attempts")


def test_truncating_gives_the_bytes_of_an_undisturbed_run(tmp_path, make_record):
    calm, disturbed = tmp_path / "calm", tmp_path / "disturbed"
    for folder in (calm, disturbed):
        folder.mkdir()
        for step in (1, 2, 3, 4):
            write_step(folder, make_record(step))
    with (disturbed / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 5, "loss": 0.')
    (disturbed / "steps" / "step_00005.part").mkdir()
    write_records(disturbed, make_record(5))
    truncate_logs(disturbed, 2, CONFIG)
    assert recorded_steps(disturbed) == [1, 2] and [line["step"] for line in read_log(disturbed)] == [1, 2]
    for step in (3, 4):
        write_step(disturbed, make_record(step))
    assert folder_bytes(calm) == folder_bytes(disturbed)


def test_truncating_goes_back_to_the_checkpoint_of_every_nth_step_when_all_newer_ones_are_gone(tmp_path, make_record):
    config = replace(CONFIG, keep_checkpoints_every=6)
    for step in range(1, 13):  # leaves the checkpoints of steps 6, 10 and 12
        write_step(tmp_path, make_record(step))
    with pytest.raises(RunDirectoryError, match=r"12 steps beyond .* at most 10: .* remove the lines of these steps to go on"):
        truncate_logs(tmp_path, 0, config)
    truncate_logs(tmp_path, 6, config)
    assert [line["step"] for line in read_log(tmp_path)] == recorded_steps(tmp_path) == [1, 2, 3, 4, 5, 6]


def test_truncating_refuses_to_throw_much_away_and_a_log_that_lacks_steps_or_is_damaged(tmp_path, make_record):
    for step in range(1, 7):
        write_step(tmp_path, make_record(step))
    for checkpoint, message in ((0, "6 steps beyond the newest checkpoint"), (8, "expected the steps 1 to 8")):
        with pytest.raises(RunDirectoryError, match=message):
            truncate_logs(tmp_path, checkpoint, CONFIG)
    assert len(read_log(tmp_path)) == 6


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"step": 1}\nnonsense\n', "Expecting value"),
        (b'{"step": 1}\n{"step": 3}\n', "expected step 2 in line 2"),
        (b'{"step": 1}\n[2]\n', "expected step 2 in line 2"),
        (b"\x00garbage\xff\n", "'utf-8' codec can't decode byte 0xff"),
    ],
)
def test_a_damaged_log_is_refused_but_not_a_line_that_a_kill_cut_short(tmp_path, content, message):
    (tmp_path / "metrics.jsonl").write_bytes(content)
    with pytest.raises(RunDirectoryError, match=f"damaged line: {message}.*Restore it from a backup"):
        read_log(tmp_path)
    for end in (b'{"st', b"\x00\x00"):
        (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 1}\n{"step": 2}\n' + end)
        assert read_log(tmp_path) == [{"step": 1}, {"step": 2}] and read_log(tmp_path, after=1) == [{"step": 2}]
