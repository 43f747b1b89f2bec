"""Which template each benchmark is asked with, as ``--templates`` says it: ``code=plain,math500=azr_math_boxed``."""

from __future__ import annotations

from collections.abc import Sequence

from populora.core.errors import ConfigError
from populora.evals.benchmarks import GROUPS, Benchmark, suite
from populora.evals.prompts import fits, load_template
from populora.tasks.render import load_prompts


def chosen_templates(text: str, wanted: Sequence[Benchmark]) -> dict[str, str]:
    """Templates by benchmark. A group's is for those of its benchmarks that it fits; a benchmark's own goes before it.

    Raises `ConfigError` for what is no such pair, what is not evaluated at all, and a group's template that fits none of it.
    """
    groups: dict[str, str] = {}
    single: dict[str, str] = {}
    for pair in (pair.strip() for pair in text.split(",") if pair.strip()):
        name, _, template = (part.strip() for part in pair.partition("="))
        named = _benchmarks(name, pair) if template else []
        if not named:
            raise ConfigError(f"--templates has '{pair}': expected BENCHMARK=TEMPLATE or GROUP=TEMPLATE, such as code=plain")
        asked = [one for one in named if one.name in {other.name for other in wanted}]
        if not asked:
            raise ConfigError(f"--templates has '{pair}', but --suite has no such benchmark: leave it out")
        fitting = [one for one in asked if fits(template, one)]
        if not fitting:
            load_template(template, asked[0], load_prompts("compact"))  # says which would fit
        into = groups if name in GROUPS else single
        if twice := [one.name for one in fitting if one.name in into]:
            raise ConfigError(f"--templates has two templates for {twice[0]}: expected one")
        into |= {one.name: template for one in fitting}
    return groups | single


def _benchmarks(name: str, pair: str) -> list[Benchmark]:
    try:
        return suite([name])
    except ConfigError as error:
        raise ConfigError(
            f"--templates has '{pair}': expected BENCHMARK=TEMPLATE or GROUP=TEMPLATE, such as code=plain; {error}"
        ) from error
