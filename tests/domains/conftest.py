"""The example package of a domain, installed as a user would, and a domain that each test may break."""

import importlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from populora.domains.registry import load_domain
from populora.tasks.render import load_prompts

EXAMPLE = Path(__file__).parents[2] / "examples" / "domain_calculator"


def forget_domains() -> None:
    """Drop what this process has loaded of installed domains."""
    load_domain.cache_clear()
    load_prompts.cache_clear()
    importlib.invalidate_caches()
    for name in [name for name in sys.modules if name.partition(".")[0] in ("calculator_domain", "toy_domain")]:
        del sys.modules[name]


@pytest.fixture(scope="session")
def calculator_folder(tmp_path_factory):
    """Build and install the example, without a network. Its build backend is one of torch's dependencies."""
    source, target = tmp_path_factory.mktemp("source") / "domain_calculator", tmp_path_factory.mktemp("target")
    shutil.copytree(EXAMPLE, source)  # setuptools writes next to the sources
    options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--target", str(target)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(source)], check=True)
    return target


@pytest.fixture
def calculator(calculator_folder, monkeypatch):
    """Have the calculator installed in this test."""
    monkeypatch.syspath_prepend(calculator_folder)
    forget_domains()
    yield load_domain("calculator")
    forget_domains()


@pytest.fixture
def install_toy(tmp_path, monkeypatch):
    """``install_toy(name, **files)``: install a copy of the example as the package ``populora-toy`` with other contents.

    ``changes`` maps a file of the package to pairs of a text and its replacement; None removes the file.
    """
    monkeypatch.syspath_prepend(tmp_path / "installed")

    def install(changes=(), entry="toy = toy_domain:DOMAIN", distribution="populora-toy"):
        package = tmp_path / "installed" / "toy_domain"
        shutil.copytree(EXAMPLE / "calculator_domain", package, dirs_exist_ok=True)
        for file in [path for path in package.rglob("*") if path.suffix in (".py", ".toml")]:
            file.write_text(file.read_text().replace("calculator", "toy"))
        for name, old, new in changes:
            text = (package / name).read_text()
            assert old in text
            (package / name).write_text(text.replace(old, new))
        information = tmp_path / "installed" / f"{distribution.replace('-', '_')}-1.5.dist-info"
        information.mkdir(parents=True)
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.5\n")
        (information / "entry_points.txt").write_text(f"[populora.domains]\n{entry}\n")
        forget_domains()
        return package

    yield install
    forget_domains()
