"""The tiny suite by task type and level."""

from populora.evals.benchmarks import BENCHMARKS
from populora.evals.breakdown import breakdown
from populora.evals.data import find_data, load_items
from populora.evals.folder import Data, Description
from populora.evals.records import Grade, append
from populora.evals.results import Source, verdict_file


def test_each_column_counts_its_own_items_and_says_where_some_are_not_graded(tmp_path):
    path = find_data(BENCHMARKS["tiny"])
    items = load_items(BENCHMARKS["tiny"], path)
    description = Description("e", (Source("S0", "student"), Source("S1", "student")), {"tiny": Data(str(path), "", len(items))})
    file = verdict_file(tmp_path, "tiny", "S0")
    file.parent.mkdir(parents=True)
    for item in items[1:]:
        append(file, Grade(item.id, item.fields["task"] == "code_o" or item.fields["author"] == "level-6"))
    (table,) = breakdown(tmp_path, description)
    assert table.groups == (("by task", 3), ("by statements", 6))
    assert table.columns == ("code_i", "code_o", "code_f", "1", "2", "3", "4", "5", "6")
    ((line,),) = table.blocks  # S1 has no verdicts
    assert [entry.plain for entry in line.entries[:3]] == ["16.7 (215/216)", "100.0", "16.7"]
    assert [entry.plain for entry in line.entries[3:]] == ["33.6 (107/108)", *["33.3"] * 4, "100.0"]


def test_an_evaluation_without_the_suite_has_no_such_table(tmp_path):
    assert breakdown(tmp_path, Description("e", (Source("S0", "student"),), {})) == []
