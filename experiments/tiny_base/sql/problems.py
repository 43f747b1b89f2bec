"""Problems of SQL: for the seeds of a run and for the held-out suite."""

import numpy as np
from experiments.tiny_base.describe import LEVELS
from experiments.tiny_base.documents import weighted
from experiments.tiny_base.mixtures import MESSAGES
from experiments.tiny_base.sql.corpus import sample_for
from experiments.tiny_base.sql.samples import PROBES

from populora.core.types import Kind, Problem, TaskType


def draw_problem(rng: np.random.Generator, task: TaskType, name: str, author: str, budget: int, evaluation: bool = False) -> Problem:
    """A problem about a statement of this budget; ``evaluation``: of one that is kept out of the corpus."""
    sample = sample_for(rng, task, budget, evaluation)
    if task.kind is not Kind.PROGRAM:
        return Problem(name, task, sample.source, (sample.example(0),), author=author)
    pairs = tuple(map(sample.example, range(PROBES)))
    message = sample.statement.told(weighted(rng, dict(zip(LEVELS, MESSAGES, strict=True))))
    return Problem(name, task, sample.source, pairs[: PROBES // 2], pairs[PROBES // 2 :], message, author)
