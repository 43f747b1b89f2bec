"""Which models of an evaluation are listed and drawn one by one: of a role with many members, those with the best and the worst scores."""

from statistics import fmean

from populora.evals.eval_records import EvalModel, Evaluation
from populora.runs.style import SHOWN_SINGLY

ENDS = 5
"""Members of each end. With ten of each role, bars for all benchmarks stay on a page."""


def shown_models(evaluation: Evaluation) -> tuple[EvalModel, ...]:
    """Return the models in their order, without the middle of the roles with more than `SHOWN_SINGLY` members.

    They are ranked by the mean over their complete benchmarks. Those without any are left out, too.
    """
    hidden: set[str] = set()
    for role in {model.role for model in evaluation.models}:
        names = [model.name for model in evaluation.models if model.role == role]
        if len(names) > SHOWN_SINGLY:
            means = {name: mean for name in names if (mean := _mean_rate(evaluation, name)) is not None}
            ranked = sorted(means, key=means.__getitem__, reverse=True)
            hidden |= {*names} - {*ranked[:ENDS], *ranked[-ENDS:]}
    return tuple(model for model in evaluation.models if model.name not in hidden)


def describe_hidden(evaluation: Evaluation) -> str:
    """Say how many models are not shown; empty if all are."""
    hidden = len(evaluation.models) - len(shown_models(evaluation))
    return (
        f"Of a role with more than {SHOWN_SINGLY} members there are the {ENDS} with the highest means over their complete benchmarks and "
        f"the {ENDS} with the lowest. The CSV has {hidden} more."
        if hidden
        else ""
    )


def _mean_rate(evaluation: Evaluation, name: str) -> float | None:
    rates = [score.rate for score in evaluation.scores_of(name).values() if score.complete]
    return fmean(rates) if rates else None
