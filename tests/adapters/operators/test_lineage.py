"""Records of children: what they hold, and that breeding by one gives the child again, to the byte and on any number of threads."""

import json
from dataclasses import replace

import pytest
import torch
from alignment import moved, tensors_at

from populora.adapters.adapter import Adapter
from populora.adapters.operators import available_operators
from populora.adapters.operators.breeding import LINEAGE_FILE, breed, breed_again, lineage_bytes, read_lineage
from populora.adapters.threads import torch_threads
from populora.core.errors import AdapterError, ConfigError
from populora.core.types import Lineage

PLAN = Lineage("c", 1, 0, "m1", stream=("breed",), refactor="revive", seed=3)


def family(make_adapter, operator: str) -> list[tuple[str, Adapter]]:
    return [(name, make_adapter(seed)) for seed, name in zip((1, 2), "ab"[: available_operators()[operator].arity], strict=False)]


def bred(plan: Lineage, parents: list[tuple[str, Adapter]]) -> tuple[Adapter, Lineage]:
    names, adapters = zip(*parents, strict=True)
    return breed(adapters, plan, names)


def through_json(lineage: Lineage) -> Lineage:
    values = json.loads(lineage_bytes(lineage, {}))
    return Lineage.from_plain({name: value for name, value in values.items() if name != "versions"})


@pytest.mark.parametrize("operator", available_operators())
def test_a_record_breeds_its_child_again(make_adapter, operator):
    parents = family(make_adapter, operator)
    child, lineage = bred(replace(PLAN, operator=operator), parents)
    assert child.fingerprint() == lineage.fingerprint
    assert lineage.parents == tuple(f"{name}:{parent.fingerprint()}" for name, parent in parents) and lineage.parent_names[0] == "a"
    again, differing = breed_again(through_json(lineage), parents)
    assert differing == [] and again.fingerprint() == child.fingerprint()


def test_the_record_holds_strengths_that_were_not_given_too(make_adapter):
    _, lineage = bred(replace(PLAN, strength={"epsilon": 0.3}), family(make_adapter, "m1"))
    assert lineage.strength == {"epsilon": 0.3, "rotation": "first_order"}


def test_another_record_is_told_field_by_field(make_adapter):
    parents = family(make_adapter, "m1")
    _, lineage = bred(PLAN, parents)
    _, differing = breed_again(replace(lineage, seed=4), parents)
    assert {line.split(":")[0] for line in differing} == {"norm_ratio", "cosines", "fingerprint"}
    _, differing = breed_again(replace(lineage, effective_rank=1.0), parents)
    assert differing == ["effective_rank: 1.0 on record, 4.0 now"]


def test_other_parents_are_refused(make_adapter):
    parents = family(make_adapter, "x1")
    _, lineage = bred(replace(PLAN, operator="x1"), parents)
    with pytest.raises(AdapterError, match=r"'moved' is not the parent of 'c': expected b:[0-9a-f]{64}, got b:"):
        breed_again(lineage, [parents[0], ("moved", make_adapter(9))])
    with pytest.raises(AdapterError, match=r"'c' has 2 parent\(s\), got 1"):
        breed_again(lineage, parents[:1])
    with pytest.raises(ConfigError, match="unknown operator 'x99'"):
        breed_again(replace(lineage, operator="x99"), parents)


def test_a_child_does_not_depend_on_the_number_of_threads():
    generator = torch.Generator().manual_seed(0)
    wide = Adapter({"w": (torch.randn(16, 4096, generator=generator), torch.randn(4096, 16, generator=generator))}, 16, 32.0)
    records, sums = [], []
    for count in (1, 2, 3):
        with torch_threads(count):
            records.append(bred(PLAN, [("a", wide)])[1])
            assert torch.get_num_threads() == count
            sums.append(wide.modules["w"][0] @ wide.modules["w"][1])
    assert records[0] == records[1] == records[2]
    if torch.equal(sums[0], sums[1]):
        pytest.skip("sums do not depend on the number of threads here")


@pytest.mark.parametrize("operator", available_operators())
def test_a_record_does_not_depend_on_the_order_of_modules_or_on_where_anything_lies(operator):
    generator = torch.Generator().manual_seed(0)

    def parent() -> Adapter:
        pairs = {f"m{index}": (torch.randn(8, 67, generator=generator), torch.randn(131, 8, generator=generator)) for index in range(9)}
        return Adapter(pairs, 8, 16.0)

    def at(adapter: Adapter, offset: int) -> Adapter:
        return replace(adapter, modules={name: (moved(a, offset), moved(b, offset)) for name, (a, b) in reversed(adapter.modules.items())})

    parents = [(name, parent()) for name in "ab"[: available_operators()[operator].arity]]
    records = []
    for offset in (0, 4, 16, 32):
        with tensors_at(offset):  # what operators draw, too
            records.append(bred(replace(PLAN, operator=operator), [(name, at(adapter, offset)) for name, adapter in parents])[1])
    assert records == [bred(replace(PLAN, operator=operator), parents)[1]] * 4


def test_a_fingerprint_depends_on_names_shapes_scale_and_bytes_but_not_on_the_order_of_modules(make_adapter):
    adapter = make_adapter(1)
    assert replace(adapter, modules=dict(reversed(adapter.modules.items()))).fingerprint() == adapter.fingerprint()
    (name, (a, b)), *other_modules = adapter.modules.items()
    others = [
        replace(adapter, alpha=9.0),
        replace(adapter, modules=dict(other_modules)),
        replace(adapter, modules={"x": (a, b), **dict(other_modules)}),
        replace(adapter, modules={name: (a.reshape(7, 4), b), **dict(other_modules)}),
        replace(adapter, modules={name: (a + torch.eye(4, 7) * 1e-7, b), **dict(other_modules)}),
    ]
    assert len({adapter.fingerprint(), *(other.fingerprint() for other in others)}) == 6


def test_a_folder_without_a_record_has_none_and_a_damaged_one_is_named(make_adapter, tmp_path):
    assert read_lineage(tmp_path) == (None, {})
    _, lineage = bred(PLAN, family(make_adapter, "m1"))
    (tmp_path / LINEAGE_FILE).write_bytes(lineage_bytes(lineage, {"torch": "2.13.0"}))
    assert read_lineage(tmp_path) == (lineage, {"torch": "2.13.0"})
    for broken in ("{", "[]", "{}", '{"versions": {}}', '{"versions": {}, "member": "c", "generation": 1, "born": 0, "colour": "red"}'):
        (tmp_path / LINEAGE_FILE).write_text(broken)
        with pytest.raises(AdapterError, match=r"lineage\.json' is not the lineage of an adapter"):
            read_lineage(tmp_path)
