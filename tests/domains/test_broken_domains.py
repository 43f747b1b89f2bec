"""Packages whose domain is broken: one error that names the package, and `populora doctor` goes on to the others."""

from types import SimpleNamespace

import pytest

from populora.cli import doctor
from populora.cli.main import main
from populora.core.errors import ConfigError, PopuloraError
from populora.domains.conformance import check
from populora.domains.registry import load_domain
from populora.tasks.render import load_prompts

INIT, RUNNER, COMPACT = "__init__.py", "runner.py", "prompts/compact.toml"
METRIC = '        Metric("constants", "constants", 0, 8, "Constants: numbers written out."),\n'
AT_LOADING = {
    "import error": ([(INIT, '"""The domain', 'import no_such_library\n"""')], "No module named 'no_such_library'"),
    "wrong object": ([(INIT, "DOMAIN = Domain(", "DOMAIN = dict(")], "'toy_domain:DOMAIN' is no Domain, but dict"),
    "no object": ([(INIT, "DOMAIN = Domain(", "OTHER = Domain(")], "has no attribute 'DOMAIN'"),
    "exit": ([(INIT, '"""The domain', 'raise SystemExit(3)\n"""')], "cannot be loaded: SystemExit: 3"),
    "other name": ([(INIT, '"toy"', '"joy"')], "calls itself 'joy': the names must be equal"),
    "three metrics": ([(INIT, METRIC, "")], "expected 4 different metrics, got ['depth', 'operators', 'names']"),
    "runner of another domain": ([(INIT, 'Runner("toy"', 'Runner("joy"')], "its runner is of 'joy'"),
}  # fmt: skip
AT_CHECKING = {
    "no runner": ([(INIT, "toy_domain.runner", "toy_domain.ruiner")], "runner 'toy_domain.ruiner' of the domain 'toy'.* no such module"),
    "absent runner package": ([(INIT, "toy_domain.runner", "joy.runner")], "'joy.runner' .* cannot be found: Mod.* No module named 'joy'"),
    "runner in no package": ([(INIT, "toy_domain.runner", "runner")], "expected a module inside a package, such as 'package.runner'"),
    "runner raises": ([(RUNNER, "import ast", "import ast\n1 / 0")], "cannot be imported in the sandbox: ZeroDivisionError"),
    "runner exits": ([(RUNNER, "import ast", "import ast\nraise SystemExit(3)")], "cannot be imported in the sandbox: SystemExit: 3"),
    "undeclared import": ([(RUNNER, "import ast", "import ast\nimport numpy")], "in the sandbox: ModuleNotFoundError: .*numpy"),
    "absent package": ([(INIT, "reasons=", 'packages=("no_such_library",), reasons=')], "needs no_such_library, which is not installed"),
    "identity fails": ([(INIT, '"x = 7"', '"y = 7"')], "does not run its domain's identity program 'x' on 'y = 7': error unknown_variable"),
    "undeclared reason": ([(INIT, '"not_bindings", ', "")], r"parse of \('', '\('\): .* declared reason, got error undeclared_reason"),
    "measure raises": ([(RUNNER, "(SyntaxError, ", "(")], r"measure of \('',\): .* got error exception:SyntaxError"),
    "reader raises": ([(RUNNER, "r\"\\s*[+-]?[0-9]{1,16}\\s*\"", '".*"')], "declared reason, got error exception:ValueError"),
    "three measures": ([(RUNNER, ", constants), ast", "), ast")], "measure of 'x': expected four integers and a text"),
    "text that is not canonical": ([(RUNNER, "write_output = str", "write_output = '+{}'.format")], r"expected '7', got '\+7'"),
    "chance": ([(RUNNER, "repetition: value_of", "repetition: repetition + value_of")], "rejected_nondeterministic"),
    "no package of prompts": ([(INIT, 'package="toy', 'package="joy')], "No module named 'joy_domain'"),
    "no part": ([(COMPACT, "output\\n{output}", "output\\n")], r"toml in 'toy_domain': expected {output} in 'toy_i' of \[solve\]"),
    "no task": ([(COMPACT, "toy_f = \"<solve>", "toy_g = \"<solve>")], r"expected {message} in 'toy_f' of \[solve\]"),
    "no table": ([(COMPACT, "[pair]", "[pairs]")], "prompts/compact.toml in 'toy_domain': unknown 'pairs'"),
    "prompts of another type": ([(COMPACT, "references = 1", "references = '1'")], r"expected 'references' \(int\)"),
    "prompts that are no TOML": ([(COMPACT, "version = 1", "version = ")], "Invalid value"),
}  # fmt: skip


@pytest.mark.parametrize("fault", AT_LOADING)
def test_what_cannot_be_loaded_is_refused_with_the_name_of_its_package(fault, install_toy):
    changes, words = AT_LOADING[fault]
    install_toy(changes)
    with pytest.raises(ConfigError) as error:
        load_domain("toy")
    assert "'toy' of populora-toy 1.5" in str(error.value) and words in str(error.value)


@pytest.mark.parametrize("fault", AT_CHECKING)
def test_what_does_not_keep_to_the_contract_is_refused_with_the_name_of_its_package(fault, install_toy):
    changes, words = AT_CHECKING[fault]
    install_toy(changes)
    with pytest.raises(PopuloraError, match=words) as error:
        check(load_domain("toy"))
    assert "populora-toy 1.5" in str(error.value) and "\n" not in str(error.value)


def test_a_copy_of_the_example_without_a_fault_conforms(install_toy):
    install_toy()
    check(load_domain("toy"))


def test_broken_prompts_are_refused_before_a_run_begins_as_well(install_toy):
    install_toy(AT_CHECKING["no task"][0])
    with pytest.raises(ConfigError, match=r"prompts/compact\.toml in 'toy_domain': expected {message} in 'toy_f' of \[solve\]"):
        load_prompts("compact", domain="toy")


def test_a_domain_without_prompts_is_refused(install_toy):
    for file in (install_toy() / "prompts").iterdir():
        file.unlink()
    with pytest.raises(
        ConfigError, match=r"'toy' of populora-toy 1\.5: expected prompts/azr\.toml or prompts/compact\.toml in 'toy_domain'"
    ):
        check(load_domain("toy"))


def test_two_packages_with_one_name_are_both_named(install_toy):
    install_toy()
    install_toy(distribution="populora-other")
    with pytest.raises(ConfigError, match=r"in several packages: populora-\w+ 1\.5, populora-\w+ 1\.5\. Uninstall all but one"):
        load_domain("toy")


def test_a_package_may_not_take_the_name_of_a_built_in_domain(install_toy):
    install_toy(entry="sql = toy_domain:DOMAIN")
    with pytest.raises(ConfigError, match=r"'sql' is in several packages: populora, populora-toy 1\.5"):
        load_domain("sql")


def test_an_unknown_domain_gets_the_nearest_name(install_toy):
    install_toy()
    with pytest.raises(ConfigError, match=r"no domain 'tony'\. Did you mean 'toy'\? Installed: python, sql, toy\."):
        load_domain("tony")


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes", [[], AT_LOADING["import error"][0], AT_CHECKING["runner raises"][0]], ids=["whole", "loading", "sandbox"]
)
def test_doctor_lists_every_domain_and_fails_with_a_broken_one(changes, install_toy, calculator, monkeypatch, capsys):
    for name in ("_tiny_base", "_computation"):
        monkeypatch.setattr(doctor, name, lambda: "fine")
    monkeypatch.setattr("populora.sandbox.layers.isolation", lambda *_: SimpleNamespace(tier="standard", report={}))
    install_toy(changes)
    assert main(["doctor"]) == bool(changes)
    lines = " ".join(capsys.readouterr().out.split())
    for line in (
        "ok domain python version 1, in populora",
        "ok domain sql",
        "ok domain calculator version 1, in populora-calculator 0.1.0",
    ):
        assert line in lines
    assert ("fail domain toy" if changes else "ok domain toy version 1, in populora-toy 1.5") in lines and "populora-toy 1.5" in lines
