from populora.evals.jailed import harness_limits

LIMITS = harness_limits("cruxeval", ("numpy",), cpu_seconds=3)


def grade_mathematics(*a):
    raise NotImplementedError
