"""The verifier validates proposals and judges attempts for the three tasks of any domain. Only the sandbox decides.

Task semantics are those of the Absolute Zero Reasoner (AZR); `populora.tasks.proposals` and `populora.tasks.attempts` list the
deviations. This process only moves text and compares keys that the sandbox made. Gold values are computed again when attempts are
judged, because two agreeing runs do not prove determinism: a problem that no longer reproduces is void for both sides.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence

from populora.core.config import TasksConfig
from populora.core.errors import SandboxFault
from populora.core.types import Attempt, Generation, Measures, Problem, Proposal, TaskType, VerdictKind
from populora.domains.registry import domain_of
from populora.sandbox.pool import Judge
from populora.sandbox.protocol import Expected, Job, Verdict
from populora.tasks.attempts import SolveRequest, answer_job, expected_values, gold_jobs, grade_attempt, read_answer
from populora.tasks.jobs import Verdicts, key_of, measure_job, reason_of, run_job
from populora.tasks.parsing import ProposalText
from populora.tasks.proposals import ProposalRequest, build_problem, check_inputs, check_jobs, read_proposal
from populora.tasks.render import Prompts, propose_prompt, solve_prompt


class TaskVerifier:
    """Validates and judges with one pool; several threads may use it at once.

    ``seed`` is the run's and decides which half of a code_f problem's pairs is hidden, unless the request has a seed. ``fits`` tells
    whether a prompt is within the run's limit. No problem may hold one of ``control_tokens``, the tokenizer's own.
    """

    def __init__(
        self,
        pool: Judge,
        prompts: Prompts,
        tasks: TasksConfig,
        seed: int,
        fits: Callable[[str], bool] = lambda prompt: True,
        control_tokens: Collection[str] = (),
    ):
        self._pool, self._prompts, self._tasks, self._seed = pool, prompts, tasks, seed
        self._fits, self._control_token = fits, re.compile("|".join(map(re.escape, control_tokens)) or "(?!)")  # never found without any

    def validate(self, responses: Sequence[tuple[ProposalRequest, Sequence[Generation]]]) -> list[list[Proposal]]:
        """Validate the responses to each request. Returns one `Proposal` per response, in order.

        One batch of jobs measures the programs and parses the inputs, a second one runs the programs. They come before the judgements
        in the pool's queue, because students wait for the problems. Raises `SandboxFault` when the sandbox itself fails on a job twice.
        """
        samples = [(request, index, generation) for request, generations in responses for index, generation in enumerate(generations)]
        domains = [domain_of(request.task) for request, _, _ in samples]
        texts = [
            read_proposal(request, generation.text, self._prompts[request.task.domain].inputs_wanted) for request, _, generation in samples
        ]
        checks = (
            job for domain, text in zip(domains, texts, strict=True) if isinstance(text, ProposalText) for job in check_jobs(domain, text)
        )
        verdicts = self._run(checks, urgent=True)
        texts = [
            text if isinstance(text, str) else check_inputs(domain, text, verdicts, key_of(self._tasks))
            for domain, text in zip(domains, texts, strict=True)
        ]
        runs = (
            run_job(domain, text.program, text.inputs, self._tasks)
            for domain, text in zip(domains, texts, strict=True)
            if isinstance(text, ProposalText)
        )
        verdicts = self._run(runs, urgent=True)
        proposals = iter([self._proposal(*sample, text, verdicts) for sample, text in zip(samples, texts, strict=True)])
        return [[next(proposals) for _ in generations] for _, generations in responses]

    def judge(self, responses: Sequence[tuple[SolveRequest, Sequence[Generation]]]) -> list[list[Attempt]]:
        """Grade the responses to each request. Returns one `Attempt` per response, in order. Raises `SandboxFault`.

        Equal jobs run once. Gold values and answers go to the pool one after the other, so that no child holds both. The pool then
        knows the expected values, and runs a program again only where that can make a difference.
        """
        problems = [request.problem for request, _ in responses]
        gold = self._run(job for problem in problems for job in gold_jobs(problem, self._tasks))
        expected = [expected_values(problem, gold, self._tasks) for problem in problems]
        lenient = self._tasks.extraction == "lenient"
        answers = [
            [read_answer(request.problem.task, generation.text, lenient) for generation in generations]
            for request, generations in responses
        ]
        right: dict[Job, set[tuple[str, ...]]] = defaultdict(set)
        for problem, values, of_problem in zip(problems, expected, answers, strict=True):
            if values is not None:
                for text in dict.fromkeys(answer.text for answer in of_problem if answer.text is not None):
                    right[answer_job(problem, text, self._tasks)].add(tuple(value.comparable for value in values))
        verdicts = gold | self._run((job for job in right if job not in gold), expected=right)
        return [
            [grade_attempt(request, *response, values, verdicts, self._tasks) for response in zip(generations, of_problem, strict=True)]
            for (request, generations), of_problem, values in zip(responses, answers, expected, strict=True)
        ]

    def measures(self, problems: Sequence[Problem]) -> list[Measures]:
        """Compute complexity and fingerprint of each program. Raises `SandboxFault` for a program that cannot be measured."""
        jobs = [measure_job(domain_of(problem.task), problem.program) for problem in problems]
        verdicts = self._run(jobs)
        measured = [verdicts[job] for job in jobs]
        for verdict in measured:
            if not verdict.ok:
                raise SandboxFault(f"expected a program that validation accepts, got one that cannot be measured ({reason_of(verdict)})")
        return [verdict.measures for verdict in measured if verdict.measures]

    def _proposal(
        self, request: ProposalRequest, sample: int, generation: Generation, text: ProposalText | str, verdicts: Verdicts
    ) -> Proposal:
        outcome = text if isinstance(text, str) else build_problem(request, sample, text, verdicts, self._tasks, self._seed)
        if isinstance(outcome, Problem) and self._has_control_token(outcome):
            outcome = "contains_markup"
        if isinstance(outcome, Problem) and not self._can_be_shown(outcome):
            outcome = "prompt_too_long"
        problem, rejection = (None, outcome) if isinstance(outcome, str) else (outcome, "")
        measures = text.measures if problem and isinstance(text, ProposalText) else None
        return Proposal(request.author, request.task, request.group, generation, rejection != "format", problem, rejection, measures)

    def _has_control_token(self, problem: Problem) -> bool:
        texts = (
            problem.program,
            problem.message,
            *(text for pair in problem.shown + problem.hidden for text in (pair.inputs, pair.output)),
        )
        return any(map(self._control_token.search, texts))

    def _can_be_shown(self, problem: Problem) -> bool:
        """Check the last stage of validation: a solver's prompt fits, and so do the proposers' prompts with this problem as reference."""
        prompts, program_task = self._prompts[problem.task.domain], domain_of(problem.task).task_types[-1]
        referring: tuple[TaskType, ...] = () if problem.task is program_task else (problem.task, program_task)
        of_proposers = [propose_prompt(prompts, task, [problem]) for task in referring]
        return all(map(self._fits, [solve_prompt(prompts, problem), *of_proposers]))

    def _run(self, jobs: Iterable[Job], expected: Expected | None = None, urgent: bool = False) -> dict[Job, Verdict]:
        """Return the verdicts of the distinct jobs, on which two processes agree: a program cannot tell validation from grading.

        Jobs that failed by the sandbox's own fault are repeated once, then `SandboxFault` is raised.
        """
        pending = list(dict.fromkeys(jobs))
        verdicts: dict[Job, Verdict] = {}
        for _ in ("first", "repetition"):
            if pending:
                verdicts |= zip(pending, self._pool.run(pending, True, expected, urgent), strict=True)
            pending = [job for job in pending if verdicts[job].kind is VerdictKind.INTERNAL]
        if pending:
            raise SandboxFault(
                f"the sandbox failed twice on {len(pending)} of {len(verdicts)} jobs (last: {reason_of(verdicts[pending[-1]])}): expected a"
                " verdict about the program. No reward was paid for it. See `populora doctor`, then `populora resume` the run."
            )
        return verdicts
