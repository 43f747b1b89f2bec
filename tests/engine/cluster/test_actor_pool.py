"""A pool's look at its calls, with a stand-in for Ray that counts the references it looks at."""

from populora.engine.cluster.actor_pool import ActorPool, PendingCall

CALLS, BURST = 2_300, 100


class CountingRay:
    """Before each look that may wait, ``BURST`` more calls are done, in order."""

    def __init__(self) -> None:
        self.done, self.looks = 0, []

    def wait(self, references, num_returns=1, timeout=None):
        self.done += BURST if timeout is None else 0
        self.looks.append(len(references))
        over = [reference for reference in references if reference < self.done][:num_returns]
        return over, [reference for reference in references if reference not in set(over)]


def test_thousands_of_calls_need_two_looks_for_each_burst_of_results():
    """So looks grow with the bursts, not with the calls."""
    pool = object.__new__(ActorPool)
    pool.ray = CountingRay()
    waiting = {PendingCall(0, (), (number,)) for number in range(CALLS)}
    bursts = []
    while waiting:
        bursts.append(pool.wait_some(sorted(waiting, key=lambda call: call.values)))
        waiting -= set(bursts[-1])
    assert [len(burst) for burst in bursts] == [BURST] * (CALLS // BURST)
    assert len(pool.ray.looks) == 2 * len(bursts)


def test_a_look_that_finds_nothing_in_time_is_the_only_one():
    pool = object.__new__(ActorPool)
    pool.ray = CountingRay()
    assert pool.wait_some([PendingCall(0, (), (number,)) for number in range(CALLS)], seconds=0.5) == []
    assert pool.ray.looks == [CALLS]
