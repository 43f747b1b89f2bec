"""The problems by which a run checks that its sampler has the learner's adapters (`populora.engine.sampling.sync_check`)."""

from collections.abc import Callable, Sequence

from populora.core.types import Kind, Member
from populora.engine.sampling.sync_check import agreement_of, check_adapter_sync
from populora.training.run import Run
from populora.training.seed_proposals import identity_problem

PROBES = 2


def check_sync(run: Run, members: Sequence[Member]) -> None:
    """Raise `AdapterEffectError` unless every trained adapter differs from the base, and sampler and learner have the same ones.

    The probes are the newest problems: late in a run, members are so sure of the oldest that a difference would hardly show. If all were
    dropped from the buffer, it is the identity.
    """
    outputs = next(task for task in run.config.task_types if task.kind is Kind.OUTPUT)
    problems = run.buffer.problems(outputs)[-PROBES:] or [identity_problem(outputs)]
    prompts = [run.solve_prompt(problem) for problem in problems]
    check_adapter_sync(run.learner, run.sampler, run.bank, prompts, [member.slot for member in members])


def allow_rounding(run: Run, remark: Callable[[str], None]) -> None:
    """Let sampler and learner differ as much as the rounding of this base needs; ``remark`` receives the bound if it is raised.

    The probes are the same at every start, so a run that resumes has the same bound.
    """
    usual = run.learner.agreement
    probes = [identity_problem(task) for task in run.config.task_types if task.kind is not Kind.PROGRAM]
    run.learner.agreement = agreement_of(run.learner, run.sampler, [run.solve_prompt(problem) for problem in probes])
    if run.learner.agreement > usual:
        remark(
            f"sampler and learner may differ by {run.learner.agreement:.2g} nats in the mean instead of {usual:.2g}: on the bare base "
            "they differ by half of it"
        )
