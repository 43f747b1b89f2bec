"""Evaluation on public benchmarks and on the tiny base's own suite: generate, grade, compare."""
