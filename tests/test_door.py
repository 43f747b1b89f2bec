"""The package's own names: what they are, what their examples print, and that importing them is cheap."""

import doctest
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version

import pytest
import torch

import populora
from populora.adapters.peft_format import save_adapter
from populora.cli import replay
from populora.core.errors import AdapterError, ConfigError, RunDirectoryError
from populora.runs import reader
from populora.tasks import checks


@pytest.mark.parametrize(("module", "examples"), [pytest.param(populora, 17, marks=pytest.mark.slow), (checks, 3), (reader, 2)])
@pytest.mark.usefixtures("short_steps")
def test_the_examples_of_the_door_print_what_they_say(module, examples):
    failed, tried = doctest.testmod(
        module, extraglobs={"populora": populora}, optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
    )
    assert tried >= examples and failed == 0


def test_importing_populora_loads_no_library_of_others():
    script = "import sys; import populora; print(sorted({'numpy', 'torch', 'pyarrow', 'rich', 'transformers'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_every_name_is_there_and_another_is_refused_with_those_that_are():
    assert all(getattr(populora, name) is not None for name in populora.__all__) and populora.__version__ == version("populora-selfplay")
    with pytest.raises(AttributeError, match="module 'populora' has no attribute 'Trainer': it has Adapter, Config"):
        _ = populora.Trainer


def test_an_adapter_is_one_line():
    assert re.fullmatch(r"Adapter\(\d+ modules, rank 4, alpha \d+, [0-9a-f]{12}\)", repr(adapter()))


def adapter(rank: int = 4, seed: int = 0) -> populora.Adapter:
    torch.manual_seed(seed)
    return populora.Adapter({"layers.0.q_proj": (torch.randn(rank, 8), torch.randn(8, rank))}, rank, 8.0)


def test_breeding_refuses_parents_of_different_bases_unless_they_are_said_to_be_the_same(tmp_path):
    for name in "ab":
        save_adapter(adapter(seed=ord(name)), tmp_path / name, f"base-{name}", ["q_proj"])
    with pytest.raises(AdapterError, match=r"different bases, 'base-a' and 'base-b'.*allow_other_base=True"):
        populora.breed([tmp_path / "a", tmp_path / "b"], "x5")
    assert populora.breed([tmp_path / "a", tmp_path / "b"], "x5", allow_other_base=True)[1].operator == "x5"


def test_breeding_warns_of_factors_without_a_common_basis():
    with pytest.warns(UserWarning, match="share no basis, and x1 mixes them"):
        populora.breed([adapter(seed=1), adapter(seed=2)], "x1")


def test_a_child_in_a_folder_can_be_bred_again_wherever_the_folders_move_together(tmp_path, capsys):
    for name in "ab":
        save_adapter(adapter(seed=ord(name)), tmp_path / "old" / name, "base", ["q_proj"])
    child, lineage = populora.breed([tmp_path / "old" / "a", tmp_path / "old" / "b"], "x3", seed=4, out=tmp_path / "old" / "child")
    assert lineage.member == "child" and lineage.parent_names == ("../a", "../b")
    shutil.move(tmp_path / "old", tmp_path / "new")
    assert populora.load_adapter(tmp_path / "new" / "child").fingerprint() == child.fingerprint()
    assert replay.main([str(tmp_path / "new" / "child")]) == 0
    _, grandchild = populora.breed([tmp_path / "new" / "child"], "m1", out=tmp_path / "new" / "grandchild")
    assert grandchild.generation == lineage.generation + 1 == 2
    (tmp_path / "link").symlink_to(tmp_path / "new" / "deeper")
    (tmp_path / "new" / "deeper").mkdir()
    populora.breed([tmp_path / "new" / "child"], "m1", out=tmp_path / "link" / "linked")
    assert replay.main([str(tmp_path / "link" / "linked")]) == 0


def test_a_child_of_adapters_without_folders_is_not_written(tmp_path):
    with pytest.raises(ConfigError, match="names its parents, so they must be PEFT folders"):
        populora.breed([adapter(seed=1)], "m1", out=tmp_path / "child")
    assert not (tmp_path / "child").exists()


def test_an_adapter_is_measured_as_its_deltas_are():
    first, second = adapter(seed=1), adapter(seed=2)
    (name,) = first.modules
    delta, other = first.delta(name).double(), second.delta(name).double()
    assert delta.shape == (8, 8)
    assert first.norm() == pytest.approx(float(delta.norm()))
    assert len(first.to(torch.bfloat16).fingerprint()) == 64
    assert first.cosine(second) == pytest.approx(float((delta * other).sum() / delta.norm() / other.norm()), abs=1e-6)
    assert first.cosine(populora.Adapter({name: (torch.zeros(4, 8), torch.zeros(8, 4))}, 4, 8.0)) == 0.0
    torch.testing.assert_close(first.singular_values()[name].double(), torch.linalg.svdvals(delta)[:4], rtol=1e-5, atol=1e-5)


def test_settings_are_changed_by_name_and_the_others_stay():
    config = populora.load_config("tiny_4t4s", steps=3, learner={"learning_rate": 1e-4})
    expected = populora.load_config("tiny_4t4s")
    assert config == replace(expected, steps=3, learner=replace(expected.learner, learning_rate=1e-4))
    with pytest.raises(ConfigError, match=r"unknown setting 'learner\.rate'"):
        populora.load_config("tiny", learner={"rate": 1})
    with pytest.raises(ConfigError, match="'learner': expected a table of settings, got 3"):
        populora.load_config("tiny", learner=3)


@pytest.mark.parametrize("parents", ["ab", [1, 2]])
def test_breeding_refuses_what_is_no_list_of_parents(parents):
    with pytest.raises(ConfigError, match="expected a list of adapters or PEFT folders"):
        populora.breed(parents, "x1")


def test_breeding_refuses_no_parents_and_a_strength_beyond_all_floats(tmp_path):
    with pytest.raises(ConfigError, match=r"takes 1 parent\(s\), got 0"):
        populora.breed([], "m1", out=tmp_path / "child")
    with pytest.raises(ConfigError, match="expected a finite number"):
        populora.breed([adapter(seed=1)], "m1", epsilon=10**400)
    with pytest.raises(ConfigError, match="expected a finite number, got None"):
        populora.breed([adapter(seed=1)], "m1", epsilon=None)
    with pytest.raises(ConfigError, match=r"expected the name of an operator, got <function .* has an entry point of group"):
        populora.breed([adapter(seed=1)], lambda parents, rng: parents[0])


def test_figures_of_no_run_are_refused():
    with pytest.raises(ConfigError, match="expected one run or more"):
        populora.figures()


def test_breeding_refuses_a_refactor_that_the_operator_does_not_use():
    with pytest.raises(ConfigError, match="'m2' splits no singular values"):
        populora.breed([adapter()], "m2", refactor="balanced")


def test_an_adapter_is_saved_only_with_settings_that_describe_it(tmp_path):
    save_adapter(adapter(rank=8), tmp_path / "like", "base", ["q_proj"])
    with pytest.raises(AdapterError, match=r"the adapter has rank 4 and alpha 8.0, expected 8 and 8.0 as in '.*like'"):
        populora.save_adapter(adapter(rank=4), tmp_path / "child", like=tmp_path / "like")
    assert not (tmp_path / "child").exists()


def test_a_configuration_with_a_value_of_the_wrong_type_is_refused_by_name(tmp_path):
    with pytest.raises(ConfigError, match=r"setting 'steps': expected int, got 'a' \(str\)"):
        populora.train(populora.Config(steps="a"), tmp_path / "run")  # type: ignore[arg-type]


def test_the_verifier_refuses_what_is_no_text_and_a_solution_without_pairs():
    verifier = populora.Verifier(allow_weak=True)
    try:
        with pytest.raises(ConfigError, match=r"expected programs and values as text, such as '42', got 42 \(int\)"):
            verifier.check_answer(42, "42")  # type: ignore[arg-type]
        for pairs in ([], ["12"], "12"):
            with pytest.raises(ConfigError, match="expected at least one pair of texts"):
                verifier.check_solution("def f(x): return x", pairs)  # type: ignore[arg-type]
    finally:
        verifier.close()


@pytest.mark.slow
def test_a_run_is_resumed_to_the_last_step_of_its_settings(tmp_path):
    config = populora.load_config("tiny")
    play, unevaluated = replace(config.selfplay, prompts_per_type=1, max_response_tokens=48), replace(config.evaluation, every=0)
    config = replace(config, steps=2, selfplay=play, evaluation=unevaluated)
    run = populora.train(config, tmp_path / "run", verbose=False)
    assert populora.resume(run.folder, verbose=False).metrics["step"].to_pylist() == [1, 2]
    with pytest.raises(RunDirectoryError, match="has no member 'T9': expected one of S0, S1, T0, T1"):
        run.member("T9")
