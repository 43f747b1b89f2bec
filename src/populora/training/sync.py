"""The problems by which a run checks that its sampler has the learner's adapters (`populora.engine.sampling.sync_check`)."""

from collections.abc import Callable, Sequence

from populora.core.types import Kind, Member, Problem
from populora.domains.registry import load_domain
from populora.engine.sampling.sync_check import agreement_of, check_adapter_sync
from populora.training.run import Run

PROBES = 2


def check_sync(run: Run, members: Sequence[Member]) -> None:
    """Raise `AdapterEffectError` unless every trained adapter differs from the base, and sampler and learner have the same ones.

    The probes are the newest problems: late in a run, members are so sure of the oldest that a difference would hardly show.
    """
    outputs = next(task for task in run.config.task_types if task.kind is Kind.OUTPUT)
    prompts = [run.solve_prompt(problem) for problem in run.buffer.problems(outputs)[-PROBES:]]
    check_adapter_sync(run.learner, run.sampler, run.bank, prompts, [member.slot for member in members])


def allow_rounding(run: Run, remark: Callable[[str], None]) -> None:
    """Let sampler and learner differ as much as the rounding of this base needs; ``remark`` receives the bound if it is raised.

    The probes are the same at every start, so a run that resumes has the same bound.
    """
    usual = run.learner.agreement
    run.learner.agreement = agreement_of(run.learner, run.sampler, [run.solve_prompt(problem) for problem in _identity_problems(run)])
    if run.learner.agreement > usual:
        remark(
            f"sampler and learner may differ by {run.learner.agreement:.2g} nats in the mean instead of {usual:.2g}: on the bare base "
            "they differ by half of it"
        )


def _identity_problems(run: Run) -> list[Problem]:
    """The domains' identity programs as problems of kinds ``i`` and ``o``."""
    tasks = [task for task in run.config.task_types if task.kind is not Kind.PROGRAM]
    identities = {task: load_domain(task.domain).identity for task in tasks}
    return [Problem(f"identity-{task}", task, program, (example,)) for task, (program, example) in identities.items()]
