""".github/: every file is valid YAML, its workflows have the least rights, and what they run by make is there."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / ".github").rglob("*.yml"))
WORKFLOWS = [path for path in FILES if path.parent.name == "workflows"]
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")


def read(path):
    return yaml.safe_load(path.read_text("utf-8"))


def targets(makefile):
    """The names before a colon that begins a rule."""
    rules = re.findall(r"^([\w-][\w -]*):(?!=)", makefile, re.MULTILINE)
    return {name for names in rules for name in names.split()}


def values(job, key):
    """The values of a job's matrix, those under ``include`` too."""
    matrix = job.get("strategy", {}).get("matrix", {})
    return [*matrix.get(key, []), *(added[key] for added in matrix.get("include", []) if key in added)]


def makes(workflow):
    """The targets that a workflow makes, with each value of the matrix."""
    for job in workflow["jobs"].values():
        scripts = [step.get("run", "") for step in job.get("steps", [])]
        for target in re.findall(r"^\s*make (\$\{\{ [\w.]+ \}\}|[\w-]+)", "\n".join(scripts), re.MULTILINE):
            if key := re.fullmatch(r"\$\{\{ matrix\.(\w+) \}\}", target):
                yield from values(job, key[1])
            else:
                yield target


def prerequisites(target):
    """The stages that a target of the Makefile names, in its rule or by a recursive make."""
    rule, recipe = re.search(rf"^{target}:(.*)\n((?:\t.*\n)*)", MAKEFILE, re.MULTILINE).groups()
    return [*rule.split(), *re.findall(r"[ ,](test[\w-]*)", recipe)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_file_is_yaml(path):
    assert isinstance(read(path), dict)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_only_read_and_ends_in_time(path):
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    assert "concurrency" in workflow
    assert all("timeout-minutes" in job for job in workflow["jobs"].values() if "uses" not in job)


def test_rights_to_write_are_those_of_the_two_jobs_that_publish():
    granted = {
        f"{path.stem}/{name}": set(job["permissions"])
        for path in WORKFLOWS
        for name, job in read(path)["jobs"].items()
        if "permissions" in job
    }
    assert granted == {"docs/deploy": {"pages", "id-token"}, "release/publish": {"id-token"}}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_what_a_workflow_makes_is_a_target(path):
    assert set(makes(read(path))) <= targets(MAKEFILE)


def test_a_target_that_is_not_there_is_noticed():
    workflow = {
        "jobs": {"a": {"strategy": {"matrix": {"stage": ["lint", "tset"]}}, "steps": [{"run": "make ${{ matrix.stage }}\nmake dcos"}]}}
    }
    assert set(makes(workflow)) - targets(MAKEFILE) == {"tset", "dcos"}


def test_every_stage_of_test_all_and_what_says_so_has_a_job_each_night():
    groups = ("test-all", "test-with-slow", "test-beside", "test-uses")
    names = ["test-slow", *(name for group in groups for name in prerequisites(group))]
    stages = [name for name in names if name.startswith("test")]
    nightly = re.findall(r"#   make (\S+)  each night:", MAKEFILE)
    assert len(stages) > 7 and len(nightly) == 4
    workflow = read(ROOT / ".github/workflows/slow.yml")
    assert {*stages, *nightly} - {*groups} <= set(makes(workflow))
    assert MAKEFILE.count("$(BUT_THOROUGH)") == 3 and workflow["env"]["NIGHTLY"]  # thorough tests of Ray, of vLLM, and of vLLM on a GPU


def test_the_oldest_python_of_the_package_is_tested():
    oldest = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["requires-python"]
    versions = values(read(ROOT / ".github/workflows/test.yml")["jobs"]["test"], "python")
    assert oldest == f">={versions[0]}"


def test_tests_of_ray_run_in_namespaces_alone():
    """They kill each process that looks like an actor."""
    others = [line for line in MAKEFILE.splitlines() if "pytest" in line.lower() and ' -m "' in line and "loopback.py" not in line]
    assert len(others) == 4 and all("and not ray" in line for line in others)
    assert "-m 'not slow and not thorough and not ray" in (ROOT / "pyproject.toml").read_text("utf-8")


def test_every_test_of_ray_is_in_a_folder_that_make_test_ray_collects():
    (command,) = [line for line in MAKEFILE.splitlines() if ' -m "ray' in line]
    folders = tuple(str(ROOT / part) for part in command.split() if part.startswith("tests/") and "loopback" not in part)
    marked = [
        path for path in ROOT.glob("tests/**/test_*.py") if re.search(r"^(?!.*-m).*mark\.ray\b", path.read_text("utf-8"), re.MULTILINE)
    ]
    assert len(marked) >= 3 and all(str(path).startswith(folders) for path in marked)


def test_one_version_is_named_everywhere():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    minor = version.rpartition(".")[0]
    places = {"CITATION.cff": f"version: {version}\n", "CHANGELOG.md": f"## [{version}]", "SECURITY.md": f"| {minor} | supported |",
              "README.md": f"Status of {minor}."}  # fmt: skip
    assert all(text in (ROOT / name).read_text("utf-8") for name, text in places.items())


def test_the_readme_of_the_wheel_has_absolute_links_only(tmp_path):
    """PyPI shows the README on a page of its own, where relative links lead nowhere."""
    (script,) = [
        step["run"] for step in read(ROOT / ".github/workflows/wheel.yml")["jobs"]["wheel"]["steps"] if "README" in step.get("name", "")
    ]
    shutil.copy(ROOT / "README.md", tmp_path)
    names = {"GITHUB_REPOSITORY": "owner/populora", "GITHUB_SHA": "0123abc", "PATH": os.environ["PATH"]}
    subprocess.run(["bash", "-euc", script], cwd=tmp_path, env=names, check=True)
    links = re.findall(r"(!?)\[[^]]*\]\(([^)]*)\)", (tmp_path / "README.md").read_text("utf-8"))
    assert len(links) == len(re.findall(r"\]\(", (ROOT / "README.md").read_text("utf-8"))) > 15
    bases = {"!": "https://raw.githubusercontent.com/owner/populora/0123abc/", "": "https://github.com/owner/populora/blob/0123abc/"}
    ours = [(bases[image], target) for image, target in links if not target.startswith("https://arxiv.org/")]
    assert len(ours) == len(links) - 2 and all(
        target.startswith(base) and (ROOT / target.removeprefix(base).partition("#")[0]).is_file() for base, target in ours
    )
