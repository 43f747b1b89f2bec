"""The presets that ship: their descriptions, `--list`, `init`, and what is said to a name that is neither preset nor file."""

import shlex
from pathlib import Path

import pytest

from populora.cli.main import main
from populora.core.config_file import load_config
from populora.core.presets import FOLDER, preset_names, read_preset, settings_file

EVERY = [*preset_names(), *preset_names(retention=True)]


@pytest.mark.parametrize("name", EVERY)
def test_every_preset_says_what_it_is_what_it_needs_and_how_long_it_takes(name):
    preset = read_preset(name)
    assert preset.summary.endswith(".") and preset.hardware and any(unit in preset.time for unit in ("minutes", "hours", " h"))


@pytest.mark.parametrize("name", preset_names())
def test_nothing_is_clipped_for_rounding_where_sampler_and_learner_round_differently(name):
    config = load_config(settings_file(name))
    agree = config.engine.backend == "inprocess" and config.base.dtype == "float32"
    assert agree or config.learner.old_logprobs == "recomputed"


@pytest.mark.parametrize(("arguments", "steps"), [([], 32), (["tiny_1t1s"], 32), (["mine.toml"], 77)])
def test_help_shows_the_values_of_the_settings_file(arguments, steps, capsys):
    Path("mine.toml").write_text("steps = 77\n")
    with pytest.raises(SystemExit) as end:
        main(["train", *arguments, "--help"])
    words = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert end.value.code == 0 and f"--steps INT Steps of the run. (default: {steps})" in words


@pytest.mark.parametrize(("command", "retention"), [("train", False), ("retention", True)])
def test_the_list_has_every_preset_of_the_command(command, retention, capsys):
    assert main([command, "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name in preset_names(retention):
        (at,) = [index for index, line in enumerate(lines) if line.startswith(f"{name} ")]
        preset = read_preset(name)
        assert lines[at].endswith(preset.summary)
        assert [line.strip() for line in lines[at + 1 : at + 3]] == [f"hardware: {preset.hardware}", f"time: {preset.time}"]
    assert len(lines) == 3 * len(preset_names(retention))


def test_presets_that_need_no_gpu_are_listed_first_and_the_default_at_the_top():
    needs_gpu = ["cuda" in load_config(settings_file(name)).base.device for name in preset_names()]
    assert preset_names()[0] == "tiny" and needs_gpu == sorted(needs_gpu)


@pytest.mark.parametrize("name", EVERY)
def test_init_writes_the_preset_and_says_how_to_run_it(name, capsys):
    assert main(["init", name]) == 0
    written = Path(f"{name}.toml")
    assert written.read_bytes() == (FOLDER / written).read_bytes()
    words = shlex.split(capsys.readouterr().out.split("`")[1])
    assert words[1:] == ["retention" if name.startswith("retention") else "train", str(written)]


def test_init_takes_another_file_and_tiny_where_nothing_is_named():
    assert main(["init"]) == main(["init", "tiny_1t1s", "-o", "mine.toml"]) == 0
    assert load_config(Path("tiny.toml")).population.teachers == 2 and load_config(Path("mine.toml")).population.teachers == 1


def test_a_name_is_the_preset_and_a_path_is_the_file():
    Path("tiny").write_text("seed = 77\n")
    assert settings_file("tiny") == FOLDER / "tiny.toml" and load_config(settings_file("./tiny")).seed == 77


BAD = {
    "train tinny": "'tinny' is neither a settings file nor a preset. Did you mean 'tiny'",
    "train configs/tny.toml": "'configs/tny.toml' is neither a settings file nor a preset. Did you mean 'tiny'",
    "train zzz": "The presets are tiny, tiny_1t1s, ",
    "train folder": "'folder' is a folder.",
    "train retention": "'retention' is a preset of another command: `",
    "retention tiny": "'tiny' is a preset of another command: `",
    "init paper_4t4": "Did you mean 'paper_4t4s'",
    "init mine.toml": "expected the name of a preset, got the file 'mine.toml'. The presets are tiny, tiny_1t1s, ",
    "init tiny -o mine.toml": "'mine.toml' exists already",
}


@pytest.mark.parametrize("line", BAD)
def test_bad_names_are_one_message_and_write_nothing(line, assert_refused):
    Path("mine.toml").write_text("seed = 1\n")
    Path("folder").mkdir()
    assert_refused(line.split(), BAD[line])
