"""`populora breed`: what it writes and prints, and that bad input is one message with nothing written."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from populora.adapters.operators import available_operators
from populora.adapters.operators.breeding import breed
from populora.adapters.peft_format import read_folder
from populora.cli.main import main
from populora.core.types import Lineage

WEIGHTS, SETTINGS, RECORD = "adapter_model.safetensors", "adapter_config.json", "lineage.json"


@pytest.fixture
def parents(make_folder) -> list[str]:
    return [make_folder(name, seed).name for seed, name in enumerate("ab")]


def bred(*arguments: str) -> dict[str, bytes]:
    """Run the command; the files it wrote."""
    assert main(["breed", *arguments]) == 0
    out = Path(arguments[arguments.index("-o") + 1])
    return {path.name: path.read_bytes() for path in out.iterdir()}


@pytest.mark.parametrize("operator", available_operators())
def test_every_operator_writes_its_child_with_the_first_parents_settings_and_a_record(parents, operator):
    arity = available_operators()[operator].arity
    files = bred(*parents[:arity], "--operator", operator, "--seed", "7", "-o", "deep/child")
    assert sorted(files) == [SETTINGS, WEIGHTS, RECORD]
    assert files[SETTINGS] == Path("a", SETTINGS).read_bytes()
    adapters = [read_folder(Path(name)).adapter for name in parents[:arity]]
    plan = Lineage("child", 1, 0, operator, seed=7, stream=("breed",), refactor="revive")
    direct, lineage = breed(adapters, plan)
    child = read_folder(Path("deep/child")).adapter
    assert child.fingerprint() == direct.fingerprint()
    record = json.loads(files[RECORD])
    assert record["parents"] == [f"../../{name}:{adapter.fingerprint()}" for name, adapter in zip(parents, adapters, strict=False)]
    assert (record["member"], record["generation"], record["born"], record["operator"]) == ("child", 1, 0, operator)
    assert (record["seed"], record["stream"], record["refactor"]) == (7, ["breed"], "revive")
    assert record["strength"] == available_operators()[operator].strengths and record["fingerprint"] == child.fingerprint()
    assert (record["norm_ratio"], record["effective_rank"]) == (lineage.norm_ratio, lineage.effective_rank)
    assert record["cosines"] == list(lineage.cosines) and set(record["versions"]) == {"python", "populora", "torch", "numpy"}


def test_a_soup_takes_as_many_parents_as_are_named_and_is_bred_again(parents, make_folder, capsys):
    bred(*parents, make_folder("c", 2).name, "--operator", "soup", "-o", "mixed")
    record = json.loads(Path("mixed", RECORD).read_text())
    assert [name.partition(":")[0] for name in record["parents"]] == ["../a", "../b", "../c"] and len(record["cosines"]) == 3
    assert main(["replay", "mixed"]) == 0 and "1 of 1 bit-identical" in capsys.readouterr().out


def test_the_same_seed_gives_the_same_bytes_and_another_seed_another_child(parents):
    first, same, other = (bred(*parents, "--operator", "x1", "--seed", seed, "-o", f"c{n}") for n, seed in enumerate("001"))
    assert first[WEIGHTS] == same[WEIGHTS] != other[WEIGHTS]


def test_parents_whose_factors_share_no_basis_are_bred_with_a_warning_where_factors_are_mixed(parents, capsys):
    bred("a", "--operator", "m4", "-o", "sibling")
    for partner, operator, warned in (("b", "x5", True), ("b", "x3", False), ("sibling", "x5", False)):
        capsys.readouterr()
        bred("a", partner, "--operator", operator, "-o", f"{partner}-{operator}")
        assert ("their factors share no basis" in " ".join(capsys.readouterr().out.split())) == warned


def test_strengths_are_numbers_and_words_in_one_flag_or_several(parents):
    first = bred("a", "--operator", "m1", "--strength", "epsilon=0.3", "rotation=cayley", "-o", "c")
    second = bred("a", "--operator", "m1", "--strength", "epsilon=3e-1", "--strength", "rotation=cayley", "-o", "d")
    plain = bred("a", "--operator", "m1", "-o", "e")
    assert first[WEIGHTS] == second[WEIGHTS] != plain[WEIGHTS]
    assert json.loads(first[RECORD])["strength"] == {"epsilon": 0.3, "rotation": "cayley"}


def test_the_summary_says_how_far_the_child_is_and_from_whom(parents, capsys):
    files = bred(*parents, "--operator", "x1", "--strength", "drop=0.5", "--seed", "3", "-o", "child")
    record, text = json.loads(files[RECORD]), capsys.readouterr().out
    for fact in (
        "x1 drop=0.5",
        f"norm ratio      {record['norm_ratio']:.4f}", f"cosine          {record['cosines'][0]:.4f}", "to a", "to b",
        "effective rank  4.00", "mean over 4 modules", f"fingerprint     {record['fingerprint'][:16]}", "seed 3", "generation 1",
        "refactor revive",
    ):  # fmt: skip
        assert fact in text
    assert all(len(line) <= 80 for line in text.splitlines())


def test_generations_are_counted_from_folder_to_folder(parents):
    bred("a", "--operator", "m4", "-o", "c")
    assert json.loads(bred("b", "c", "--operator", "x5", "-o", "d")[RECORD])["generation"] == 2


def test_parents_with_different_bases_are_bred_when_that_is_accepted(make_folder, parents, assert_refused):
    make_folder("other", 3, base="/models/some-base")
    assert_refused(["breed", "a", "other", "--operator", "x5", "-o", "c"], "'some/base' and '/models/some-base'")
    files = bred("a", "other", "--operator", "x5", "--allow-other-base", "-o", "c")
    assert json.loads(files[SETTINGS])["base_model_name_or_path"] == "some/base"


def test_the_list_explains_every_operator(capsys):
    assert main(["breed", "--list"]) == 0
    text = capsys.readouterr().out
    for name, operator in available_operators().items():
        assert f" {name} " in text and f" {operator.alias} " in text
        assert all(f"{strength}={value}" in text for strength, value in operator.strengths.items())
        assert all(word in text for word in operator.summary.split())


BAD = {
    "breed --operator m1 -o out": "expected PEFT folders, got none",
    "breed a b c --operator x1 -o out": "operator 'x1' takes 2 parent(s), got 3",
    "breed a --operator soup -o out": "operator 'soup' takes 2 or more parent(s), got 1",
    "breed a -o out": "expected --operator NAME: `populora breed --list`",
    "breed a --operator m1": "expected -o OUT",
    "breed a --operator m1 -o full": "'full' exists already",
    "breed a --operator m1 -o full/file": "'full/file' exists already",
    "breed a b --operator m1 -o out": "operator 'm1' takes 1 parent(s), got 2",
    "breed a --operator svd_structurd -o out": "unknown operator 'svd_structurd'. Did you mean 'svd_structured'?",
    "breed a --operator m4 --strength epsilom=1 -o out": "no strength 'epsilom'. Did you mean 'epsilon'?",
    "breed a --operator m4 --strength epsilon=much -o out": "'epsilon': expected a finite number, got 'much'",
    "breed a --operator m4 --strength epsilon -o out": "expected a strength as NAME=VALUE, such as epsilon=0.2, got 'epsilon'",
    "breed a --operator m4 --strength epsilon=1 epsilon=2 -o out": "--strength: expected each name once, got 'epsilon' twice",
    "breed a --operator m4 --refactor balanced -o out": "operator 'm4' splits no singular values: leave refactor out",
    "breed a --operator m4 --refactor even -o out": "invalid choice 'even'",
    "breed a --operator m4 --seed one -o out": "--seed: expected an integer, got 'one'",
    "breed nowhere --operator m4 -o out": "'nowhere' is not a PEFT adapter",
    "breed a damaged --operator x1 -o out": "damaged or cut off",
    "breed a sick --operator x1 -o out": "holds NaN or infinite weights",
    "breed a deep --operator x1 -o out": "'model.layers.2.self_attn.q_proj' and 1 more are in only one of them",
    "breed a other --operator x1 -o out": "the parents have different bases, 'some/base' and 'other/base'",
    "breed a --operator m4 --strength epsilon=1e60 -o out": "holds NaN or infinite weights",
    "breed a a --operator x5 -o out": "operator 'x5' gave a child equal to parent 1",
    "breed a --operator m4 -o full/file/out": "cannot",
}


@pytest.mark.parametrize("line", BAD)
def test_bad_input_is_one_message_and_writes_nothing(line, parents, make_folder, assert_refused):
    make_folder("deep", 2, layers=3), make_folder("other", 2, base="other/base")
    damaged, sick = make_folder("damaged", 2), make_folder("sick", 2)
    (damaged / WEIGHTS).write_bytes((damaged / WEIGHTS).read_bytes()[:-9])
    save_file({key: tensor / 0.0 for key, tensor in load_file(sick / WEIGHTS).items()}, sick / WEIGHTS)
    Path("full").mkdir()
    Path("full/file").write_text("precious")
    assert_refused(line.split(), BAD[line])


def test_breeding_loads_no_library_of_models(parents):
    probe = "import sys\nfrom populora.cli.main import main\nassert main(['breed', 'a', 'b', '--operator', 'x1', '-o', 'c']) == 0\n"
    probe += "assert not {'transformers', 'peft', 'scipy', 'pyarrow'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", probe], check=True, capture_output=True)
