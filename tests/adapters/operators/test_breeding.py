"""Properties of every operator through `breed`, the measures against dense deltas, and what it refuses."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from children import child_of
from hypothesis import given, settings
from hypothesis import strategies as st

from populora.adapters.adapter import Adapter
from populora.adapters.operators import OPERATORS, Operator
from populora.adapters.operators.similarity import basis_cosine, delta_inner, measure_similarity
from populora.core.errors import AdapterError, ConfigError

RANDOM = ("m1", "m2", "m3", "m4", "m5", "m6", "x1", "x2", "x3", "x4", "x7")


def parents_for(make_adapter, operator: str, **shape) -> list[Adapter]:
    return [make_adapter(seed, **shape) for seed in range(1, 1 + OPERATORS[operator].arity)]


def dense(adapter: Adapter) -> torch.Tensor:
    return torch.cat([(b @ a).flatten().double() for a, b in adapter.modules.values()])


@settings(max_examples=60, deadline=None)
@given(
    operator=st.sampled_from(list(OPERATORS)),
    refactor=st.sampled_from(["revive", "balanced"]),
    rank=st.integers(3, 9),
    modules=st.integers(1, 5),
    zero_b=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_rank_shapes_dtype_and_parents_are_kept(make_adapter, operator, refactor, rank, modules, zero_b, seed):
    parents = parents_for(make_adapter, operator, rank=rank, modules=modules, zero_b=zero_b)
    before = [parent.fingerprint() for parent in parents]
    child = child_of(parents, operator, seed, refactor=refactor, allow_copy=True)
    assert [parent.fingerprint() for parent in parents] == before
    assert (child.adapter.rank, child.adapter.alpha) == (rank, 2.0 * rank)
    assert list(child.adapter.modules) == sorted(parents[0].modules)
    for name, pair in child.adapter.modules.items():
        for tensor, model, other in zip(pair, parents[0].modules[name], parents[-1].modules[name], strict=True):
            assert tensor.shape == model.shape and tensor.dtype == torch.float32
            assert tensor.data_ptr() not in (model.data_ptr(), other.data_ptr())
    assert child.effective_rank <= min(rank, 6)
    again = child_of(parents, operator, seed, refactor=refactor, allow_copy=True)
    assert again.adapter.fingerprint() == child.adapter.fingerprint()


@pytest.mark.parametrize("operator", RANDOM)
def test_another_stream_gives_another_child(make_adapter, operator):
    parents = parents_for(make_adapter, operator)
    first, second = (child_of(parents, operator, seed).adapter.fingerprint() for seed in (0, 1))
    assert first != second


@pytest.mark.parametrize("operator", OPERATORS)
def test_measures_agree_with_the_dense_deltas(make_adapter, operator):
    parents = parents_for(make_adapter, operator, modules=3)
    child = child_of(parents, operator, 3)
    deltas, delta = [dense(parent) for parent in parents], dense(child.adapter)
    mean = sum(float(other.norm()) for other in deltas) / len(deltas)
    assert child.norm_ratio == pytest.approx(float(delta.norm()) / mean, rel=1e-5)
    for cosine, other in zip(child.cosines, deltas, strict=True):
        assert cosine == pytest.approx(float(delta @ other / delta.norm() / other.norm()), abs=1e-5)
    ranks = [int(torch.linalg.matrix_rank(b @ a, rtol=1e-5)) for a, b in child.adapter.modules.values()]
    assert child.effective_rank == pytest.approx(sum(ranks) / 3)
    assert len(child.cosines) == OPERATORS[operator].arity


def test_the_norm_ratio_is_a_number_also_where_all_parents_are_zero(make_adapter):
    parent = make_adapter(0)
    zero = replace(parent, modules={name: (a, b * 0) for name, (a, b) in parent.modules.items()})
    assert [measure_similarity(child, [zero, zero]).norm_ratio for child in (zero, parent)] == [1.0, 0.0]


@pytest.mark.parametrize("scale", [1e-25, 1e-16, 1e16, 1e25])
@pytest.mark.parametrize("operator", ["m1", "m4", "x5"])
def test_measures_hold_at_scales_whose_squares_leave_the_range_of_fp32(make_adapter, operator, scale):
    parents = parents_for(make_adapter, operator)
    scaled = [replace(parent, modules={name: (a, b * scale) for name, (a, b) in parent.modules.items()}) for parent in parents]
    usual, far = (child_of(family, operator, 3) for family in (parents, scaled))
    assert far.norm_ratio == pytest.approx(usual.norm_ratio, rel=1e-4)
    assert far.cosines == pytest.approx(usual.cosines, abs=1e-4) and far.effective_rank == usual.effective_rank


def test_the_cosine_of_two_bases_tells_adapters_of_one_start_from_strangers(make_adapter):
    adapter, stranger = make_adapter(1), make_adapter(2)
    sibling = child_of([adapter], "m4").adapter
    turned = child_of([adapter], "m1", epsilon=1e-3).adapter  # the same delta in another basis
    assert basis_cosine(adapter, adapter) == pytest.approx(1.0) and basis_cosine(adapter, sibling) > 0.95
    assert abs(basis_cosine(adapter, stranger)) < 0.3 and abs(basis_cosine(adapter, turned)) < 0.5
    nothing, longer = (replace(adapter, modules={name: (size * a, b) for name, (a, b) in adapter.modules.items()}) for size in (0, 3))
    assert basis_cosine(adapter, nothing) == 0.0 and basis_cosine(adapter, longer) == pytest.approx(1)


@pytest.mark.parametrize("operator", [name for name, operator in OPERATORS.items() if operator.arity == 2])
def test_only_what_mixes_factors_is_spoiled_by_a_parent_in_another_basis(make_adapter, operator):
    adapter = make_adapter(1, modules=40)
    turned = child_of([adapter], "m1", epsilon=1e-4)  # nearly the same delta, so every mixture should be near it, too
    assert turned.cosines[0] > 0.999
    strength = {"drop": 0.0} if operator == "x1" else {}
    cosine = child_of([adapter, turned.adapter], operator, 1, **strength).cosines[0]
    assert (cosine < 0.95) == OPERATORS[operator].mixes_factors


def test_measuring_needs_no_dense_delta():
    generator = torch.Generator().manual_seed(0)
    wide = Adapter({"w": (torch.randn(2, 300_000, generator=generator), torch.randn(300_000, 2, generator=generator))}, 2, 4.0)
    child = child_of([wide], "m1")  # dense: 360 GB
    assert 0.5 < child.norm_ratio < 2 and delta_inner(wide, wide) > 0


@pytest.mark.parametrize("operator", OPERATORS)
def test_children_of_fresh_parents_are_the_same_policy(make_adapter, operator):
    child = child_of(parents_for(make_adapter, operator, zero_b=True), operator)
    assert child.norm_ratio == 1.0 and set(child.cosines) == {1.0} and child.effective_rank == 0.0


def test_one_fresh_parent_has_no_direction(make_adapter):
    child = child_of([make_adapter(1), make_adapter(2, zero_b=True)], "linear_0_5")
    assert child.cosines[1] == 0.0 and 0 < child.norm_ratio < math.inf
    masked = child_of([make_adapter(1)], "m3", fraction=1.0)
    assert (masked.norm_ratio, masked.cosines, masked.effective_rank) == (0.0, (0.0,), 0.0)


@pytest.mark.parametrize(
    ("operator", "strength", "parent"),
    [
        ("m1", {"epsilon": 0.0}, 1),
        ("m2", {"epsilon": 0.0}, 1),
        ("m2", {"fraction": 0.0}, 1),
        ("m3", {"fraction": 0.0}, 1),
        ("m4", {"epsilon": 0.0}, 1),
        ("m5", {"alpha": 0.0}, 1),
        ("m6", {"k": 0, "sigma": 0.0}, 1),
        ("x4", {"eta_max": 1.0}, 2),
        ("x5", {"alpha": 1.0}, 1),
        ("x5", {"alpha": 0.0}, 2),
        ("x8", {"t": 0.0}, 1),
        ("x8", {"t": 1.0}, 2),
    ],
)
def test_a_child_equal_to_a_parent_is_refused_unless_copies_are_allowed(make_adapter, operator, strength, parent):
    parents = parents_for(make_adapter, operator)
    with pytest.raises(AdapterError, match=f"operator '{operator}' gave a child equal to parent {parent} "):
        child_of(parents, operator, **strength)
    child = child_of(parents, operator, allow_copy=True, **strength)
    assert child.norm_ratio == pytest.approx(1.0, rel=0.5) and child.cosines[parent - 1] == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("operator", ["x2", "x3", "x4", "x5", "x6", "x8", "x9"])
def test_equal_parents_of_a_crossover_that_only_mixes_are_refused(make_adapter, operator):
    strength = {"tau": 0.0} if operator == "x6" else {}
    with pytest.raises(AdapterError, match="equal to parent 1"):
        child_of([make_adapter(1), make_adapter(1)], operator, **strength)


@pytest.mark.parametrize("operator", ["x1", "x7"])
def test_equal_parents_of_a_crossover_that_draws_are_not_refused(make_adapter, operator):
    assert child_of([make_adapter(1), make_adapter(1)], operator).cosines[0] < 0.99


def test_a_layer_wise_child_of_one_parent_alone_is_refused(make_adapter):
    with pytest.raises(AdapterError, match="another seed"):
        child_of(parents_for(make_adapter, "x2", modules=1), "x2")


def test_controls_may_copy(make_adapter):
    parents = [make_adapter(1), make_adapter(1)]
    assert child_of(parents[:1], "copy_parent").adapter.fingerprint() == parents[0].fingerprint()
    assert child_of(parents, "linear_0_5").adapter.fingerprint() == parents[0].fingerprint()


@pytest.mark.parametrize("size", [1.0, 1e-6])
@pytest.mark.parametrize(("operator", "strength"), [("m1", {"epsilon": 1e-4}), ("m4", {"epsilon": 1e-4}), ("m5", {"alpha": 1e-3})])
def test_a_small_change_is_a_change_also_of_a_small_delta(make_adapter, operator, strength, size):
    parent = make_adapter(1)
    parent = replace(parent, modules={name: (a, b * size) for name, (a, b) in parent.modules.items()})
    assert child_of([parent], operator, **strength).cosines[0] > 1 - 1e-6


def test_a_fresh_parent_is_changed_by_another_a(make_adapter):
    fresh = make_adapter(1, zero_b=True)
    assert child_of([fresh], "m4").cosines == (1.0,)
    with pytest.raises(AdapterError, match="equal to parent 1"):
        child_of([fresh, fresh], "x5")


@pytest.mark.parametrize(
    ("operator", "strength", "message"),
    [
        ("full_gausian", {}, r"'full_gausian'\. Did you mean 'full_gaussian'\?"),
        ("m4", {"epsilom": 0.1}, r"no strength 'epsilom'\. Did you mean 'epsilon'\?"),
        ("copy_parent", {"epsilon": 0.1}, r"no strength 'epsilon'.*none"),
        ("m1", {"refactor": "even"}, "revive, balanced, got 'even'"),
        ("m1", {"rotation": 1.0}, "rotation"),
        ("m1", {"rotation": "exact"}, "rotation"),
        ("m2", {"fraction": 1.1}, "fraction"),
        ("m6", {"k": 1.5}, "k"),
        ("m6", {"k": 4}, "k"),
        ("x1", {"drop": 1.0}, "drop"),
        ("x1", {"space": "weights"}, "space"),
        ("x4", {"eta_min": 2.0}, "eta_min"),
        ("x5", {"alpha": 1.1}, "alpha"),
        ("x6", {"tau": 1.0}, "tau"),
        ("x7", {"epsilon": 1.0}, "epsilon"),
        ("x8", {"t": 1.5}, "t"),
        ("x9", {"epsilon": 0.0}, "epsilon"),
    ],
)
def test_unknown_names_and_impossible_strengths_are_errors(make_adapter, operator, strength, message):
    parents = parents_for(make_adapter, operator) if operator in OPERATORS else [make_adapter(1)]
    with pytest.raises(ConfigError, match=message):
        child_of(parents, operator, **strength)


@pytest.mark.parametrize(
    ("operator", "strength"),
    [(name, {strength: value}) for name, operator in OPERATORS.items() for strength in operator.strengths
     for value in ("much", True, math.nan, math.inf, -7) if not (strength.startswith("eta") and value == -7)],
)  # fmt: skip
def test_every_strength_is_checked_with_one_clear_error(make_adapter, operator, strength):
    (name,) = strength
    with pytest.raises(ConfigError, match=f"strength '{name}': expected .*, got"):
        child_of(parents_for(make_adapter, operator), operator, **strength)


@pytest.mark.parametrize(("operator", "count"), [("m1", 2), ("x1", 1), ("x1", 3), ("copy_parent", 0), ("soup", 1)])
def test_a_wrong_number_of_parents_is_an_error(make_adapter, operator, count):
    with pytest.raises(ConfigError, match=f"takes {OPERATORS[operator].arity}( or more)? parent"):
        child_of([make_adapter(1)] * count, operator)


def wrong_shape(adapter: Adapter) -> Adapter:
    return replace(adapter, modules={name: (a[:, :-1], b) for name, (a, b) in adapter.modules.items()})


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda adapter: replace(adapter, rank=5), "parent 2 has rank 5"),
        (lambda adapter: replace(adapter, alpha=9.0), "alpha 9.0"),
        (lambda adapter: replace(adapter, modules={}), "the same modules"),
        (lambda adapter: replace(adapter, modules={f"{name}.x": pair for name, pair in adapter.modules.items()}), "the same modules"),
        (wrong_shape, r"A of 'layers.0.q_proj': expected shape \(4, 7\), got \(4, 6\)"),
        (lambda adapter: replace(adapter, modules={n: (a.double(), b) for n, (a, b) in adapter.modules.items()}), "expected float32"),
    ],
)
def test_parents_that_do_not_fit_are_errors(make_adapter, spoil, message):
    with pytest.raises(AdapterError, match=message):
        child_of([make_adapter(1), spoil(make_adapter(2))], "x2")


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("operator", ["m1", "m3", "copy_parent"])
def test_parents_with_nan_or_infinite_weights_are_errors(make_adapter, operator, value):
    parent = copy.deepcopy(make_adapter(1))
    parent.modules["layers.3.q_proj"][1][0, 0] = value
    with pytest.raises(AdapterError, match=r"parent 1, B of 'layers\.3\.q_proj' holds NaN or infinite"):
        child_of([parent], operator)


def test_a_child_that_overflows_or_changes_shape_is_an_error(make_adapter, monkeypatch):
    with pytest.raises(AdapterError, match="child of operator 'm1'"):
        child_of([make_adapter(1)], "m1", epsilon=1e3)
    monkeypatch.setitem(OPERATORS, "m9", Operator("m9", 1, lambda parents, rng: wrong_shape(parents[0]), "loses a column"))
    with pytest.raises(AdapterError, match="child of operator 'm9', A of"):
        child_of([make_adapter(1)], "m9")


def test_large_weights_whose_sum_overflows_are_no_infinite_weights(make_adapter):
    parent = make_adapter(1)
    large = replace(parent, modules={name: (a.fill_(3e38), b) for name, (a, b) in copy.deepcopy(parent.modules).items()})
    assert child_of([large], "copy_parent").adapter.fingerprint() == large.fingerprint()
