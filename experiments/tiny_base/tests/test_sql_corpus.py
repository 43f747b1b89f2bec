"""Documents of SQL: deterministic, right, short enough, and disjoint from the held-out statements."""

import re
from collections import Counter
from dataclasses import replace

import pytest
from experiments.tiny_base.corpus import draw_shard
from experiments.tiny_base.mixtures import MIXTURES, SQL_PROPOSING, SQL_REASONING, SQL_SETTLED
from experiments.tiny_base.sql.corpus import prompts, propose_document, sample_for, search, solve_document
from experiments.tiny_base.sql.execution import execute
from experiments.tiny_base.sql.expressions import Column, Constant, Operation
from experiments.tiny_base.sql.samples import Sample, draw_sample, held_out
from experiments.tiny_base.sql.statements import Item, Query, Statement
from experiments.tiny_base.sql.tables import Table, rows_text
from experiments.tiny_base.tests.test_sql_statements import result_of
from experiments.tiny_base.tokenizer import SQL, build_tokenizer

from populora.core.rng import stream
from populora.tasks.parsing import answer_text, is_formatted

TOKENIZER = build_tokenizer(("python", "sql"))
SEARCHING = replace(SQL_SETTLED, styles={"full": 1})


@pytest.fixture(scope="module")
def shard():
    return draw_shard(3, 0, 600, SQL_SETTLED)


def fences(text, tag):
    return re.findall(rf"```{tag}\n(.*?)\n```", text, re.DOTALL)


@pytest.mark.thorough
def test_a_shard_is_a_function_of_seed_and_index(shard):
    assert draw_shard(3, 0, 600, SQL_SETTLED) == shard
    assert draw_shard(3, 1, 50, SQL_SETTLED) != shard[:50]
    assert draw_shard(4, 0, 50, SQL_SETTLED) != shard[:50]


def test_every_document_fits_into_a_prompt_and_a_response(shard):
    for document in shard:
        assert is_formatted(document.response)
        assert len(TOKENIZER(document.prompt)["input_ids"]) <= 256
        assert len(TOKENIZER(document.response)["input_ids"]) < 224
    assert len({document.kind for document in shard}) == 6


def test_no_held_out_statement_is_in_the_corpus(shard):
    statements = [text for document in shard for text in fences(document.prompt + document.response, "sql")]
    assert len(statements) > 500 and not any(map(held_out, statements))


def test_answers_are_right(shard):
    """SQLite runs the statements of the documents on the databases of the documents."""
    checked = Counter()
    for document in shard:
        answer = answer_text(document.response)
        if document.kind == "solve sql_o":
            (statement,), (database,), (output,) = (
                fences(document.prompt, "sql"),
                fences(document.prompt, "input"),
                fences(answer, "output"),
            )
        elif document.kind == "solve sql_i":
            (statement,), (database,), (output,) = (
                fences(document.prompt, "sql"),
                fences(answer, "input"),
                fences(document.prompt, "output"),
            )
        elif document.kind == "solve sql_f":
            (statement,), databases, outputs = fences(answer, "sql"), fences(document.prompt, "input"), fences(document.prompt, "output")
            database, output = databases[1], outputs[1]
            assert len(databases) == len(outputs) == prompts().inputs_wanted // 2
        else:
            continue
        rows, expected = result_of(statement, database), [] if output == "no rows" else output.split("\n")
        assert rows == expected if " ORDER BY " in statement else Counter(rows) == Counter(expected)
        checked[document.kind] += 1
    assert min(checked.values()) > 30


def test_proposals_can_be_executed_and_those_of_sql_f_have_different_databases_and_outputs(shard):
    for document in shard:
        role, name = document.kind.split()
        if role == "propose":
            databases = fences(document.response, "input")
            statement = fences(document.prompt if name == "sql_f" else document.response, "sql")[0]
            outputs = {tuple(sorted(result_of(statement, database))) for database in databases}
            assert len(set(databases)) == (prompts().inputs_wanted if name == "sql_f" else 1)
            assert name != "sql_f" or len(outputs) >= 2


def test_the_last_stage_proposes_outputs_that_differ_more_and_guesses_no_row_without_effect():
    documents = [document for document in draw_shard(3, 0, 300, SQL_PROPOSING) if document.kind == "propose sql_f"]
    for document in documents:
        statement, databases = fences(document.prompt, "sql")[0], fences(document.response, "input")
        assert len({tuple(sorted(result_of(statement, database))) for database in databases}) >= 3
    statement = Statement(Query((Item(Column("a")),), "t", where=Operation(">", (Column("a"), Constant(4)))))
    database = (Table("t", ("a", "b"), ((2, 1), (7, 1), (3, 1))),)
    schema = replace(statement, schema={"t": ("a", "b")})
    sample = Sample(schema, 1, (database,) * 2, (execute(schema, database),) * 2)
    wrong = replace(sample.runs[0], rows=((9,),))
    mixture = replace(SQL_PROPOSING, wrong_guesses=(0, 1))
    told = "".join(text for text, _ in search(stream(1, "guess"), sample, wrong, mixture)).partition("\n\n")[0]
    assert told == "\nFROM t\na=7 WHERE a=7 > 4; True SELECT a=7 -> 7"


def test_only_the_last_stage_has_results_without_rows_to_infer_and_to_explain():
    def empty(mixture, name: str) -> float:
        documents = [solve_document(stream(7, "empty", index), name, sample, mixture) for index, sample in enumerate(samples)]
        return sum("no rows" in fences(document.response if name == "sql_o" else document.prompt, "output") for document in documents) / 100

    rng = stream(7, "samples")
    samples = [draw_sample(rng, 5) for _ in range(100)]
    assert empty(SQL_SETTLED, "sql_o") == empty(SQL_SETTLED, "sql_i") == 0
    assert empty(SQL_PROPOSING, "sql_o") == empty(SQL_PROPOSING, "sql_i") == sum(sample.empty is not None for sample in samples) / 100 > 0.1


def test_the_last_stage_proposes_long_statements_with_larger_results():
    def rows(mixture) -> float:
        rng = stream(8, "rich")
        answers = [propose_document(rng, "sql_o", sample, mixture).response for sample in samples]
        results = [result_of(fences(answer, "sql")[0], fences(answer, "input")[0]) for answer in answers]
        return sum(map(len, results)) / len(results)

    samples = [draw_sample(stream(8, "samples", index), 8) for index in range(80)]
    assert rows(SQL_PROPOSING) > 1.2 * rows(SQL_SETTLED)


def test_a_proposal_is_about_as_large_as_its_reference():
    rng = stream(5, "coupled")
    lengths = []
    for budget in (1, 8):
        sample = draw_sample(rng, budget)
        answers = [fences(propose_document(rng, "sql_o", sample, SQL_SETTLED).response, "sql")[0] for _ in range(60)]
        lengths.append(sum(map(len, answers)) / 60)
    assert lengths[1] > 2 * lengths[0]


@pytest.mark.parametrize(("mixture", "direct"), [(SQL_REASONING, 0.18), (SQL_SETTLED, 0.47)])
def test_share_of_direct_answers(mixture, direct):
    rng = stream(5, "styles")
    sample = sample_for(rng, "sql_o", 3)
    responses = [solve_document(rng, "sql_o", sample, mixture).response for _ in range(1000)]
    assert sum(response.startswith("</think>") for response in responses) / 1000 == pytest.approx(direct, abs=0.05)


def test_reasoning_about_sql_i_guesses_until_the_output_fits_and_learns_no_wrong_value():
    sample = draw_sample(stream(5, "guesses"), 3)
    guesses = Counter()
    for index in range(60):
        document = solve_document(stream(index, "a"), "sql_i", sample, SEARCHING)
        thought = document.response.partition("</think>")[0]
        parts = thought.split("\n\n")
        guesses[len(parts)] += 1
        wrong_rows = [line for part in parts[:-1] for line in part.split("\n") if "=" in line]
        zero = "".join(text for text, weight in document.pieces if weight == 0)
        assert bool(wrong_rows) == bool(zero) or thought == ""
    assert guesses[1] > 10 and guesses[2] > 10


def test_reasoning_binds_every_column_of_every_row_and_ends_before_the_answer():
    for index in range(30):
        sample = draw_sample(stream(index, "bind"), 1 + index % 8)
        response = solve_document(stream(1, "a"), "sql_o", sample, SEARCHING).response
        for table in sample.databases[0]:
            for row in table.rows:
                bound = Table(table.name, table.columns, (row,))
                assert bound_text(bound) in response
        assert answer_text(response) == f"```output\n{rows_text(execute(sample.statement, sample.databases[0]).rows)}\n```"


def bound_text(table):
    return ",".join(f"{name}={'NULL' if value is None else repr(value)}" for name, value in zip(table.columns, table.rows[0], strict=True))


@pytest.mark.thorough
def test_documents_of_python_keep_their_tokens_and_those_of_sql_have_their_own():
    before = build_tokenizer()
    assert TOKENIZER.get_vocab().items() >= before.get_vocab().items()
    for name in ("reasoning", "summarising"):
        for document in draw_shard(0, 0, 300, MIXTURES[name]):
            text = document.prompt + document.response
            assert TOKENIZER(text)["input_ids"] == before(text)["input_ids"]
    assert all(len(TOKENIZER(token)["input_ids"]) == 1 for token in SQL)


@pytest.mark.thorough
def test_every_token_of_sql_occurs(shard):
    documents = [*shard, *draw_shard(3, 5, 1500, SQL_REASONING)]
    ids = {token for document in documents for token in TOKENIZER(document.prompt + document.response)["input_ids"]}
    assert not [token for token in SQL if TOKENIZER(token)["input_ids"][0] not in ids]


@pytest.mark.thorough
def test_a_mixture_of_both_languages_has_its_share_of_python():
    kinds = Counter("sql" in document.kind for document in draw_shard(3, 0, 800, MIXTURES["both_settled"]))
    assert kinds[False] / 800 == pytest.approx(0.35, abs=0.05)
