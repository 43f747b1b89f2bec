"""Each adapter is on as many engines as asked, engines hold equally many, and each role has work for all engines."""

from hypothesis import given
from hypothesis import strategies as st

from populora.core.config import ClusterConfig, Config, PopulationConfig
from populora.core.config_check import engines_without_work
from populora.engine.cluster.adapter_holders import EngineLoads, held_slots, holders_of


@given(st.integers(1, 60), st.integers(1, 12), st.data())
def test_each_adapter_is_on_as_many_engines_as_asked_and_engines_hold_equally_many(slots, engines, data):
    copies = data.draw(st.integers(0, engines))
    holders = holders_of(slots, ClusterConfig(1, engines=engines, adapter_copies=copies))
    held = held_slots(holders, engines)
    assert sorted(holders) == [-1, *range(slots)] and set(holders[-1]) == set(range(engines))
    assert all(len(set(holders[slot])) == len(holders[slot]) == (copies or engines) for slot in range(slots))
    assert all((slot in held[engine]) == (engine in holders[slot]) for slot in range(slots) for engine in range(engines))
    sizes = [len(of_engine) for of_engine in held]
    assert sizes == [slots] * engines if copies == 0 else max(sizes) - min(sizes) <= copies


@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 12), st.data())
def test_settings_that_leave_an_engine_without_a_teacher_or_a_student_are_known(teachers, students, engines, data):
    cluster = ClusterConfig(1, engines=engines, adapter_copies=data.draw(st.integers(1, engines)))
    held = held_slots(holders_of(teachers + students, cluster), engines)
    busy = all(min(of_engine, default=teachers) < teachers <= max(of_engine, default=0) for of_engine in held)
    assert engines_without_work(Config(population=PopulationConfig(teachers, students), cluster=cluster)) == (not busy)


def test_an_adapter_s_requests_are_shared_by_its_engines_and_those_with_least_to_do_come_first():
    loads = EngineLoads({0: [0, 1], 1: [1, 2], 2: [2, 0], -1: range(3)}, engines=3)
    assert [loads.add(slot, 8) for slot in (0, 0, 0, 1, 1, 1, 2, -1)] == [0, 1, 0, 2, 1, 2, 2, 0]
    loads.remove(1, 2, 8)
    assert [loads.add(slot, samples) for slot, samples in ((1, 4), (1, 8), (2, 1))] == [1, 2, 0]
