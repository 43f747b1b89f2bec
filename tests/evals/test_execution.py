"""Execution accuracy on three databases made here, with known verdicts: Spider's form of a suite, and BIRD's."""

import json
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from served_model import served

from populora.cli.main import main
from populora.core.errors import ConfigError
from populora.evals import sql_suite
from populora.evals.benchmarks import BENCHMARKS
from populora.evals.data import digest_of, find_data, load_items
from populora.evals.graders.execution import extract_statements, grade_execution
from populora.evals.prompts import load_template, render
from populora.tasks.render import load_prompts

SHOP = """
CREATE TABLE product(id INTEGER PRIMARY KEY, name TEXT, price REAL, stock INTEGER);
CREATE TABLE sale(product_id INTEGER, day TEXT, amount INTEGER, FOREIGN KEY (product_id) REFERENCES product(id));
INSERT INTO product VALUES (1, 'tea', 0.1, 5), (2, 'coffee', 0.2, NULL), (3, 'cup', 3.0, 1), (4, 'pot', 12.5, 0);
INSERT INTO sale VALUES (1, '2023-01-05', 2), (1, '2023-02-01', 1), (3, '2024-01-05', 1), (3, '2024-01-05', 1);
CREATE VIEW sold AS SELECT name, amount FROM product JOIN sale ON product.id = product_id;
"""
SCHOOL = """
CREATE TABLE "pupil list"("First Name" TEXT, "Age (years)" INTEGER, note TEXT);
INSERT INTO "pupil list" VALUES ('Ann', 9, 'two' || char(10) || 'lines'), ('Bo', 10, x'ff00'), ('Cy', 9, CAST(x'4ce9' AS TEXT));
"""
LOGGED = "CREATE TABLE t(a); INSERT INTO t VALUES (1), (2);"
ENDLESS = "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
CHEAP = "SELECT name FROM product WHERE price < 1"
BY_PRICE = "SELECT name FROM product ORDER BY price"
DAYS = "SELECT day FROM sale"
AGES = 'SELECT "First Name" FROM "pupil list" WHERE "Age (years)" = 9'
VERDICTS = [
    ("shop", CHEAP, "SELECT p.name FROM product AS p WHERE NOT p.price >= 1.0", ""),
    ("shop", CHEAP, "SELECT name FROM product WHERE price < 1 ORDER BY name DESC", ""),
    ("shop", BY_PRICE, "select NAME from product order by price asc, id;", ""),
    ("shop", BY_PRICE, "SELECT name FROM product ORDER BY price DESC", "wrong"),
    ("shop", BY_PRICE, "SELECT name FROM product", "wrong"),
    ("shop", CHEAP, "SELECT name, price FROM product WHERE price < 1", "wrong_width"),
    ("shop", CHEAP, "SELECT upper(name) FROM product WHERE price < 1", "wrong"),
    ("shop", CHEAP, "SELECT name FROM product WHERE price < 0", "wrong"),
    ("shop", "SELECT count(*) FROM sale", "SELECT count(*) * 1.0 FROM sale", ""),
    ("shop", "SELECT count(*) FROM sale", "SELECT CAST(count(*) AS TEXT) FROM sale", "wrong"),
    ("shop", "SELECT sum(price) FROM product WHERE id < 3", "SELECT 0.3", ""),
    ("shop", "SELECT stock FROM product", "SELECT stock + 0 FROM product", ""),
    ("shop", "SELECT stock FROM product", "SELECT coalesce(stock, 0) FROM product", "wrong"),
    ("shop", DAYS, "SELECT DISTINCT day FROM sale", "wrong"),
    ("shop", "SELECT name FROM product WHERE id > 9", "SELECT id, name FROM product WHERE 0", ""),
    ("shop", "SELECT name, amount FROM sold", "SELECT name, amount FROM product, sale WHERE product_id = id", ""),
    ("shop", 'SELECT id FROM product WHERE name = "tea"', "SELECT id FROM product WHERE name = 'tea'", ""),
    ("shop", "SELECT strftime('%Y', day) FROM sale", "SELECT substr(day, 1, 4) FROM sale", ""),
    ("school", AGES, AGES.replace('"', "`"), ""),
    ("school", 'SELECT note FROM "pupil list"', 'SELECT note FROM "pupil list" WHERE 1', ""),
    ("school", 'SELECT note FROM "pupil list" WHERE "First Name" = \'Cy\'', "SELECT 'L'", ""),
    ("logged", "SELECT sum(a) FROM t", "SELECT 3", ""),
]  # fmt: skip
FAILURES = [
    (CHEAP, "DELETE FROM sale", "error:not_one_select"),
    (CHEAP, "I cannot tell.", "error:not_one_select"),
    (CHEAP, "SELECT name FROM product WHERE", "error:unparsable_statement"),
    (CHEAP, "SELECT colour FROM product", "error:unknown_name"),
    (CHEAP, "SELECT name FROM sqlite_master", "error:forbidden_construct"),
    (CHEAP, "SELECT name FROM product ORDER BY random()", "error:forbidden_construct"),
    (CHEAP, "SELECT name FROM product WHERE date('now') > '2000'", "error:forbidden_construct"),
    (CHEAP, "SELECT strftime('%Y') FROM product", "error:forbidden_construct"),
    (CHEAP, "SELECT datetime(day, 'localtime') FROM sale", "error:forbidden_construct"),
    (CHEAP, "SELECT load_extension('x')", "error:forbidden_construct"),
    (CHEAP, "SELECT abs(-9223372036854775807 - 1)", "error:statement_error"),
    (CHEAP, "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 60000) SELECT i FROM n", "error:too_many_rows"),
    (CHEAP, "", "no_answer"),
]  # fmt: skip
FAILING_GOLD = [
    ("SELECT colour FROM product", "gold_failed:error:unknown_name"),
    ("SELECT CURRENT_DATE", "gold_failed:error:forbidden_construct"),
    ("DROP TABLE sale", "gold_failed:error:not_one_select"),
]


def make_suite(folder: Path, questions: list[dict], databases: str = "database") -> Path:
    for name, script in {"shop": SHOP, "school": SCHOOL, "logged": LOGGED}.items():
        file = folder / databases / name / f"{name}.sqlite"
        file.parent.mkdir(parents=True)
        with closing(sqlite3.connect(file)) as connection:
            if name == "logged":
                connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(script)
    (folder / "dev.json").write_text(json.dumps(questions))
    return folder


def question(database: str, gold: str) -> dict:
    return {"db_id": database, "question": f"What does {gold} give?", "query": gold}


@pytest.fixture(scope="module")
def suite(tmp_path_factory) -> Path:
    golds = [(name, gold) for name, gold, _, _ in VERDICTS] + [("shop", gold) for gold, _, _ in FAILURES]
    golds += [("shop", gold) for gold, _ in FAILING_GOLD]
    return make_suite(tmp_path_factory.mktemp("data") / "spider", [question(*gold) for gold in golds])


@pytest.fixture(scope="module")
def graded(pool_of, suite):
    """``graded(gold, completion)``: the grade of a completion on the shop."""
    path = str(suite / "database" / "shop" / "shop.sqlite")

    def grade(gold: str, completion: str, path: str = path):
        item = sql_suite.Item("0", {**question("shop", gold), "evidence": "", "path": path})
        return grade_execution(pool_of("spider"), BENCHMARKS["spider"], item, completion)

    return grade


def fenced(statement: str) -> str:
    return f"so</think> <answer>It is\n```sql\n{statement}\n```\n</answer>" if statement else "so</think> <answer></answer>"


def test_every_question_of_the_suite_gets_its_known_verdict(suite, tmp_path, capsys):
    statements = (
        [statement for _, _, statement, _ in VERDICTS] + [statement for _, statement, _ in FAILURES] + ["SELECT 1"] * len(FAILING_GOLD)
    )
    lines = [json.dumps({"item_id": str(number), "completion": fenced(statement)}) for number, statement in enumerate(statements)]
    (tmp_path / "completions.jsonl").write_text("\n".join(lines))
    out = tmp_path / "verdicts.jsonl"
    command = ["evaluate", "grade", "spider", str(tmp_path / "completions.jsonl"), "--data", str(suite), "--out", str(out), "--allow-weak"]
    assert main(command) == 0
    grades = [json.loads(line) for line in out.read_text().splitlines()]
    known = [reason for *_, reason in VERDICTS] + [reason for *_, reason in FAILURES] + [reason for _, reason in FAILING_GOLD]
    assert [(grade["item_id"], grade["reason"]) for grade in grades] == [(str(number), reason) for number, reason in enumerate(known)]
    right = sum(not reason for reason in known)
    counts = json.loads(out.with_suffix(".json").read_text())
    assert (counts["items"], counts["correct"]) == (len(known) - len(FAILING_GOLD), right) and counts["facts"]["sqlite"]
    assert list(counts["void"].values()) == [reason for _, reason in FAILING_GOLD]
    said = capsys.readouterr()
    assert f"spider: {right} of {len(known) - len(FAILING_GOLD)} correct" in said.out
    assert "3 items are void and count neither as correct nor as wrong: 35 (gold_failed:error:unknown_name)" in said.err


def test_the_known_verdicts_are_those_of_an_independent_comparison(suite):
    """Rows as SQLite itself gives them: in order if the gold statement says so, else as a multiset."""
    for name, gold, statement, reason in VERDICTS:
        with closing(sqlite3.connect(suite / "database" / name / f"{name}.sqlite")) as connection:
            connection.text_factory = lambda data: data.decode(errors="ignore")
            rows, expected = ([tuple(map(shown, row)) for row in connection.execute(text)] for text in (statement, gold))
        equal = rows == expected if "ORDER BY" in gold else Counter(rows) == Counter(expected)
        unordered = "ORDER BY" in gold and "order by" not in statement.lower()  # by chance in order: the judge does not rely on it
        assert (equal and not unordered) == (reason == ""), statement


def shown(value: object) -> object:
    return round(value, 9) if isinstance(value, float) else value


@pytest.mark.slow
def test_a_statement_that_does_not_end_is_stopped_by_its_steps(graded):
    assert graded(CHEAP, fenced(ENDLESS)).reason == "error:too_many_steps"


def test_the_last_fence_is_the_answer_or_leniently_the_whole_text(graded):
    two = f"so</think><answer>First\n```sql\nSELECT 1\n```\nno:\n```sqlite\n{CHEAP}\n```</answer>"
    assert graded(CHEAP, two).modes == {"strict": True, "lenient": True}
    assert graded(CHEAP, f"so</think><answer>{CHEAP}</answer>").modes == {"strict": False, "lenient": True}
    assert graded(CHEAP, f"so</think>\n{CHEAP}").modes == {"strict": False, "lenient": True}
    assert graded(CHEAP, f"```sql\n{CHEAP}\n```").correct and BENCHMARKS["spider"].primary == "lenient"
    assert extract_statements("```sql\nSELECT 1\n```</think>```sql\n```") == {"strict": "", "lenient": ""}
    assert (
        extract_statements("so</think>```\nSELECT 1\n```")["lenient"]
        == extract_statements("so</think>```sql\nSELECT 1")["lenient"]
        == "SELECT 1"
    )
    assert extract_statements("<answer>```python\n1\n```</answer>")["strict"] == ""


def test_a_statement_may_read_the_database_alone_and_leaves_it_as_it_was(graded, suite):
    before = digest_of(suite)
    for statement in (
        "ATTACH '/etc/passwd' AS x",
        "PRAGMA journal_mode = DELETE",
        "SELECT readfile('/etc/passwd')",
        "VACUUM INTO '/tmp/x'",
    ):
        assert graded(CHEAP, fenced(statement)).reason in ("error:not_one_select", "error:forbidden_construct")
    assert digest_of(suite) == before


def test_a_database_that_is_too_large_or_none_is_named_and_says_nothing_about_the_model(graded, tmp_path, monkeypatch):
    noise = tmp_path / "noise.sqlite"
    noise.write_bytes(b"no database" * 500)
    grade = graded(CHEAP, fenced(CHEAP), str(noise))
    assert (grade.void, grade.correct, grade.reason) == (True, False, "gold_failed:error:malformed_database")
    monkeypatch.setattr(sql_suite, "LARGEST_MB", 0)
    grade = graded(CHEAP, fenced(CHEAP))
    assert (grade.void, grade.reason) == (True, "database_too_large")


@pytest.mark.slow
def test_a_model_is_evaluated_on_a_suite_and_void_questions_are_in_no_number(suite, tmp_path, capsys):
    golds = [CHEAP, BY_PRICE, "SELECT colour FROM product"]
    make_suite(tmp_path / "spider", [question("shop", gold) for gold in golds])
    how = ["--suite", "spider", "--data", str(tmp_path), "--key-variable", "", "--allow-weak"]
    with served() as server:
        for name, reply in {"first": CHEAP, "second": "SELECT 1"}.items():
            server.reply = fenced(reply)
            assert main(["evaluate", name, "--endpoint", server.url, *how, "-o", str(tmp_path / name)]) == 0
    said = capsys.readouterr()
    assert "first on spider: 1 of 2 correct (50.0 %)" in said.out and "second on spider: 0 of 2 correct" in said.out
    table = (tmp_path / "first" / "downstream.md").read_text()
    assert "| 50.0 |" in table and "neither as correct nor as wrong: 1 of Spider" in " ".join(table.split())
    assert main(["evaluate", "compare", str(tmp_path / "first"), str(tmp_path / "second")]) == 0
    assert "50.0" in capsys.readouterr().out


def test_birds_form_has_hints_and_other_names(tmp_path):
    row = {"question_id": 7, "db_id": "shop", "question": "Which are cheap?", "evidence": "cheap means price < 1", "SQL": CHEAP}
    folder = make_suite(tmp_path / "bird", [row], "dev_databases")
    bird = BENCHMARKS["bird"]
    (item,) = load_items(bird, find_data(bird, str(tmp_path)))
    assert (item.id, item.fields["query"]) == ("7", CHEAP)
    prompt = render(load_template("text_to_sql", bird, load_prompts("azr")), bird, item, None)
    assert "Hint: cheap means price < 1\nQuestion: Which are cheap?\n" in prompt and prompt.endswith("Assistant: <think>")
    assert "CREATE TABLE product(id INTEGER PRIMARY KEY, name TEXT, price REAL, stock INTEGER);\nCREATE TABLE sale" in prompt
    assert "CREATE VIEW sold" in prompt and CHEAP not in prompt
    first = digest_of(folder)
    with closing(sqlite3.connect(folder / "dev_databases" / "shop" / "shop.sqlite")) as connection, connection:
        connection.execute("DELETE FROM sale")
    assert digest_of(folder) != first


def test_a_prompt_without_a_hint_has_none(suite):
    item = load_items(BENCHMARKS["spider"], suite)[0]
    prompt = render(load_template("text_to_sql", BENCHMARKS["spider"], load_prompts("azr")), BENCHMARKS["spider"], item, None)
    assert "Hint:" not in prompt and "```\nQuestion: What does" in prompt and "{" not in prompt


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["spider", "bird"])
def test_gold_statements_of_a_users_suite_are_right_or_void(benchmark_data, name, pool_of):
    benchmark = BENCHMARKS[name]
    if not (benchmark_data / name).is_dir():
        pytest.skip(f"'{benchmark_data}' has no folder '{name}'")
    for item in load_items(benchmark, find_data(benchmark, str(benchmark_data))):
        grade = grade_execution(pool_of(name), benchmark, item, fenced(item.fields["query"]))
        assert grade.correct != grade.void, (item.id, grade.reason)


@pytest.mark.parametrize(
    ("questions", "message"),
    [
        ("{", "expected a list of questions in JSON"),
        ("{}", "expected a list of questions, got"),
        ("[]", "expected a list of questions, got"),
        ('[{"db_id": "shop", "question": "?"}]', "question 0: expected texts db_id, question, and query or SQL"),
        ('[{"db_id": "none", "question": "?", "query": "SELECT 1"}]', "question 0: there is no database '.*none.sqlite' or"),
        ('[{"db_id": "../database/shop", "question": "?", "query": "SELECT 1"}]', "question 0: there is no database"),
    ],
)  # fmt: skip
def test_a_folder_that_is_no_suite_is_named(tmp_path, questions, message):
    folder = make_suite(tmp_path / "spider", [])
    (folder / "dev.json").write_text(questions)
    with pytest.raises(ConfigError, match=message):
        load_items(BENCHMARKS["spider"], folder)


def test_a_folder_without_questions_and_a_schema_that_is_none_are_named(tmp_path):
    with pytest.raises(ConfigError, match=r"has no dev\.json: expected the folder of Spider or BIRD"):
        load_items(BENCHMARKS["spider"], tmp_path)
    (tmp_path / "x.sqlite").write_bytes(b"no database" * 500)
    with pytest.raises(ConfigError, match="is no database of SQLite"):
        sql_suite.schema_of(str(tmp_path / "x.sqlite"))
