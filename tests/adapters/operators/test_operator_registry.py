"""The registry: the paper's names and defaults, aliases, and third-party operators behind entry points."""

import sys
from importlib.metadata import EntryPoint

import pytest
from children import child_of

from populora.adapters.operators import OPERATORS, available_operators, get_operator, registry
from populora.core.config import EvolutionConfig
from populora.core.errors import ConfigError

PLUGIN = """
from dataclasses import replace
from populora.adapters.operators import Operator

def halve(parents, rng, *, share=0.5):
    return replace(parents[0], modules={n: (a.clone(), b * share) for n, (a, b) in parents[0].modules.items()})

HALVE = Operator("halve", 1, halve, "shrinks the delta")
NOT_ONE = halve
"""


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """Install entry points as a third-party package would: name -> "module:attribute"."""
    (tmp_path / "halving_operators.py").write_text(PLUGIN)
    (tmp_path / "raising_operators.py").write_text("raise ValueError('no table')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "halving_operators", raising=False)

    def install(**values: str) -> None:
        points = [EntryPoint(name, value, registry.GROUP) for name, value in values.items()]
        monkeypatch.setattr(registry, "entry_points", lambda group: points if group == registry.GROUP else [])

    return install


def test_names_arities_and_defaults_are_the_papers():
    assert {name: operator.strengths for name, operator in OPERATORS.items() if operator.in_paper} == {
        "m1": {"epsilon": 0.1, "rotation": "first_order"},
        "m2": {"epsilon": 0.1, "fraction": 0.33},
        "m3": {"fraction": 0.3},
        "m4": {"epsilon": 0.15},
        "m5": {"alpha": 10.0},
        "m6": {"k": 2, "sigma": 0.05},
        "copy_parent": {},
        "x1": {"drop": 0.7, "space": "factor"},
        "x2": {},
        "x3": {},
        "x4": {"eta_min": 1.0, "eta_max": 1.5},
        "x5": {"alpha": 0.5},
        "x6": {"tau": 0.2},
        "x7": {"epsilon": 0.1},
        "x8": {"t": 0.5},
        "x9": {"epsilon": 1e-20},
        "linear_0_5": {},
    }
    assert [name for name, operator in OPERATORS.items() if not operator.in_paper] == ["soup"]
    assert {name for name, operator in OPERATORS.items() if operator.arity == 2} == {
        *(f"x{number}" for number in range(1, 10)),
        "linear_0_5",
        "soup",
    }
    assert [name for name, operator in OPERATORS.items() if operator.takes_refactor] == ["m1", "m3", "m6", "x1", "x3", "soup"]
    assert [name for name, operator in OPERATORS.items() if operator.control] == ["copy_parent", "linear_0_5"]


def test_the_default_pool_is_exactly_the_live_eight():
    assert EvolutionConfig().operators == ("m1", "m2", "m3", "m4", "x1", "x2", "x3", "x4")
    assert set(EvolutionConfig().operators) < set(OPERATORS)


def test_aliases_name_the_same_operators():
    assert get_operator("svd_structured") is get_operator("m1") is get_operator("M1") and get_operator("DARE") is get_operator("x1")
    assert (
        len({operator.alias for operator in OPERATORS.values()} | set(OPERATORS)) == 2 * len(OPERATORS) - 3
    )  # controls and soup: one name


@pytest.mark.parametrize("name", ["m1", "dare", "X3"])
def test_a_third_party_operator_cannot_take_a_built_in_name(plugin, name):
    plugin(**{name: "halving_operators:HALVE"})
    assert get_operator(name) in OPERATORS.values()
    with pytest.raises(ConfigError, match=f"operator '{name}' .*a built-in operator has that name"):
        available_operators()


def test_a_third_party_operator_has_the_name_of_its_entry_point(plugin):
    plugin(shrink="halving_operators:HALVE")
    with pytest.raises(ConfigError, match=r"operator 'shrink' .*expected an Operator of that name"):
        get_operator("shrink")


def test_a_third_party_operator_breeds_like_a_built_in_one(plugin, make_adapter):
    plugin(halve="halving_operators:HALVE")
    child = child_of([make_adapter(1)], "halve", share=0.25)
    assert child.norm_ratio == pytest.approx(0.25)
    assert list(available_operators()) == [*OPERATORS, "halve"]


def test_entry_points_load_only_when_asked_for(plugin):
    plugin(halve="halving_operators:HALVE")
    get_operator("m1")
    with pytest.raises(ConfigError, match=r"'halv'\. Did you mean 'halve'\?"):
        get_operator("halv")
    assert "halving_operators" not in sys.modules
    get_operator("halve")
    assert "halving_operators" in sys.modules


@pytest.mark.parametrize(
    "value", ["no_such_module:HALVE", "halving_operators:NOTHING", "halving_operators:NOT_ONE", "raising_operators:HALVE"]
)
def test_an_entry_point_that_is_no_operator_is_an_error(plugin, value):
    plugin(halve=value)
    for ask in (lambda: get_operator("halve"), available_operators):
        with pytest.raises(ConfigError, match="operator 'halve'"):
            ask()
