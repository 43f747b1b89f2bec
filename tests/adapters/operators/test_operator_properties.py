"""What holds for every operator: no strength, no change; parents of any condition give a finite child."""

from dataclasses import replace

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from populora.adapters.operators import OPERATORS
from populora.core.rng import stream

UNCHANGED = [
    ("m1", {"epsilon": 0.0}, "one"),
    ("m1", {"epsilon": 0.0, "rotation": "cayley"}, "one"),
    ("m2", {"epsilon": 0.0}, "one"),
    ("m2", {"fraction": 0.0}, "one"),
    ("m3", {"fraction": 0.0}, "one"),
    ("m4", {"epsilon": 0.0}, "one"),
    ("m5", {"alpha": 0.0}, "one"),
    ("m6", {"k": 0, "sigma": 0.0}, "one"),
    ("copy_parent", {}, "one"),
    ("x1", {"drop": 0.0}, "twins"),
    ("x1", {"drop": 0.0, "space": "delta"}, "twins"),
    ("x2", {}, "twins"),
    ("x3", {}, "twins"),
    ("x4", {"eta_min": 0.0, "eta_max": 0.0}, "two"),
    ("x4", {}, "twins"),
    ("x5", {"alpha": 1.0}, "two"),
    ("x6", {"tau": 0.0}, "twins"),
    ("x8", {"t": 0.0}, "two"),
    ("x8", {}, "twins"),
    ("x9", {"epsilon": 1e-30}, "twins"),  # with its default of 1e-20, entries below 1e-10 fade
    ("linear_0_5", {}, "twins"),
    ("soup", {}, "twins"),
]
"""Operator, strength and parents (twins are equal) that give the first parent's delta again. X7 always drops."""


def conditioned(adapter, scale, deficiency):
    """The adapter with deltas of another size, or of lower rank in one of four ways, or nearly so."""

    def change(a, b):
        a, b = a.clone(), b * scale
        if deficiency == "zero":
            b.zero_()
        elif deficiency == "column":
            b[:, 0] = 0.0
        elif deficiency == "repeated":
            b[:, 1] = b[:, 0]
        elif deficiency == "row":
            a[0] = a[1]
        elif deficiency == "fading":  # the last components are small, but not zero
            b *= torch.logspace(0, -5.3, b.shape[1])
        return a, b

    return replace(adapter, modules={name: change(*pair) for name, pair in adapter.modules.items()})


CONDITIONS = {
    "rank": st.integers(3, 9),
    "modules": st.integers(1, 3),
    "scale": st.sampled_from([1e-6, 1e-3, 1.0, 1e3]),
    "deficiency": st.sampled_from(["none", "zero", "column", "repeated", "row", "fading"]),
    "refactor": st.sampled_from(["revive", "balanced"]),
    "seed": st.integers(0, 10**6),
}


@settings(max_examples=150, deadline=None)
@given(case=st.sampled_from(UNCHANGED), **CONDITIONS)
def test_without_strength_the_delta_is_the_parents_to_fp32_accuracy(make_adapter, case, rank, modules, scale, deficiency, refactor, seed):
    name, strength, kind = case
    parents = [conditioned(make_adapter(seed + (kind == "two") * i, modules=modules, rank=rank), scale, deficiency) for i in range(2)]
    operator = OPERATORS[name]
    more = {"refactor": refactor} if operator.takes_refactor else {}
    child = operator.function(parents[: operator.arity], stream(seed, "op"), **more, **strength)
    for slot, (a, b) in child.modules.items():
        wanted_a, wanted_b = parents[0].modules[slot]
        tolerance = 3e-6 * float(wanted_a.norm() * wanted_b.norm())
        torch.testing.assert_close(b @ a, wanted_b @ wanted_a, atol=tolerance, rtol=0)


@settings(max_examples=150, deadline=None)
@given(operator=st.sampled_from(list(OPERATORS)), **CONDITIONS)
def test_parents_of_any_condition_give_a_finite_child(make_adapter, operator, rank, modules, scale, deficiency, refactor, seed):
    chosen = OPERATORS[operator]
    parents = [conditioned(make_adapter(seed + i, modules=modules, rank=rank), scale, deficiency) for i in range(chosen.arity)]
    more = {"refactor": refactor} if chosen.takes_refactor else {}
    child = chosen.function(parents, stream(seed, "op"), **more)
    assert all(bool(torch.isfinite(tensor).all()) for pair in child.modules.values() for tensor in pair)
    if refactor == "revive" and chosen.takes_refactor and operator != "x1":
        assert all(bool((a.norm(dim=1) > 0).all()) for a, _ in child.modules.values())  # no component is dead for ever
