"""Evals: members, adapters and models on benchmarks.

Generate responses, grade them in the sandbox, compare: ten public benchmarks and the tiny base's own suite. `retention` is the benchmark
of the operators. It imports training and the rooms below. Start with `benchmarks`, then docs/evaluation.md.
"""
