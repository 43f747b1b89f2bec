"""The example package of a third-party operator, found by its entry point as an installed package's would be."""

import importlib
import shutil
import sys
import tomllib
from pathlib import Path

import pytest
from children import child_of

from populora.adapters.operators import OPERATORS, available_operators
from populora.core.config import Config, EvolutionConfig
from populora.core.errors import ConfigError
from populora.training.evolution import check_operators

EXAMPLE = Path(__file__).parents[3] / "examples" / "third_party_operator"
GROUP = "populora.adapters.operators"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Lay the package out on the path as pip does, from what its own pyproject.toml says, without building it."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())
    (module,) = project["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
    shutil.copy(EXAMPLE / module, tmp_path)
    name, version = (project["project"][key] for key in ("name", "version"))
    information = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    points = "".join(f"{key} = {value}\n" for key, value in project["project"]["entry-points"][GROUP].items())
    (information / "entry_points.txt").write_text(f"[{GROUP}]\n{points}")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    yield
    sys.modules.pop(Path(module).stem, None)


@pytest.mark.usefixtures("installed")
def test_the_example_breeds_by_name(make_adapter):
    assert list(available_operators()) == [*OPERATORS, "fade"]
    parent = make_adapter(1)
    child = child_of([parent], "fade", least=0.5)
    assert 0.5 < child.norm_ratio < 1 and child.cosines[0] > 0.9
    assert child_of([parent], "fade", least=0.5).adapter.fingerprint() == child.adapter.fingerprint()


@pytest.mark.usefixtures("installed")
def test_the_example_may_be_put_into_the_pool():
    check_operators(Config(evolution=EvolutionConfig(operators=("m1", "fade"))))


def test_without_the_package_its_name_is_unknown():
    with pytest.raises(ConfigError, match="unknown operator 'fade'"):
        check_operators(Config(evolution=EvolutionConfig(operators=("m1", "fade"))))
