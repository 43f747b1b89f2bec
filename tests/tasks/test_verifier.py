"""The verifier's own logic, against a scripted pool: stages, batches, hidden pairs, void problems, faults of the sandbox."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from populora.core.config import AZR_BANNED_IMPORTS, TasksConfig
from populora.core.errors import SandboxFault
from populora.core.types import CODE_TYPES, Example, Generation, Measures, Problem, TaskType, VerdictKind
from populora.domains.registry import load_domain
from populora.sandbox.protocol import Job, Value, Verdict
from populora.tasks import jobs
from populora.tasks.attempts import SolveRequest
from populora.tasks.proposals import ProposalRequest
from populora.tasks.render import load_prompts
from populora.tasks.verifier import TaskVerifier

I, O, F = CODE_TYPES
TASKS = TasksConfig()
PROGRAM = "def f(x):\n    return x + 1"
SOURCE = Problem("source", O, PROGRAM, (Example("3", "4"),))
TIMEOUT = Verdict(VerdictKind.TIMEOUT, "cpu")
BROKEN = Verdict(VerdictKind.INTERNAL, "zygote_lost")
NOT_LITERAL = Verdict(VerdictKind.ERROR, "not_literal")


def value(text: str) -> Value:
    """As the sandbox would: white space is dropped, booleans equal their numbers unless types are compared."""
    literal = "".join(text.split())
    return Value(literal=literal, canonical=f"tagged {literal}", comparable={"True": "1", "False": "0"}.get(literal, literal))


def run_job(program: str, inputs: tuple[str, ...]) -> Job:
    return jobs.run_job(load_domain("python"), program, inputs, TASKS)


class ScriptedPool:
    """Answers every job from a script; programs that are not in it add one to an integer."""

    def __init__(self, script: dict[Job, list[Verdict]] | None = None):
        self.script = script or {}
        self.batches: list[tuple[list[Job], bool]] = []
        self.expected, self.urgent = {}, []

    def run(self, jobs: Sequence[Job], twice: bool = False, expected=None, urgent: bool = False) -> list[Verdict]:
        self.batches.append((list(jobs), twice))
        self.expected |= expected or {}
        self.urgent.append(urgent)
        return [self.script[job].pop(0) if self.script.get(job) else self.default(job) for job in jobs]

    def default(self, job: Job) -> Verdict:
        if job.mode == "measure":
            return Verdict(VerdictKind.OK, measures=Measures((1, 1, 2, 1), job.program))
        if not all("".join(text.split()).isalnum() for text in job.texts):
            return NOT_LITERAL
        texts = job.texts if job.mode == "parse" else [str(int(text) + 1) for text in job.texts]
        return ok(*texts)

    def ran(self) -> list[Job]:
        return [job for jobs, _ in self.batches for job in jobs]


def ok(*texts: str) -> Verdict:
    return Verdict(VerdictKind.OK, values=tuple(map(value, texts)))


def verifier(pool: ScriptedPool, equality="python", seed: int = 0) -> TaskVerifier:
    return TaskVerifier(pool, {"python": replace(load_prompts("compact"), inputs_wanted=4)}, TasksConfig(equality=equality), seed)  # type: ignore[arg-type]


def generation(text: str) -> Generation:
    return Generation(text, (), (), (), 0.0)


def answered(content: str) -> Generation:
    return generation(f"so</think><answer>{content}</answer>")


def fenced(tag: str, text: str) -> str:
    return f"```{tag}\n{text}\n```"


def proposed(task: TaskType = O, program: str = PROGRAM, inputs: str = "3", problem_id: str = "p"):
    """A request and one response to it."""
    request = ProposalRequest("", 0, 1, (), "T0", task, 0, 7, problem_id, SOURCE)
    return request, [answered(f"{fenced('python', program)}\n{fenced('input', inputs)}")]


def described(*inputs: str, message: str = "adds one", problem_id: str = "p"):
    content = "\n".join([*(fenced("input", text) for text in inputs), fenced("message", message)])
    return ProposalRequest("", 0, 1, (), "T0", F, 2, 7, problem_id, SOURCE), [answered(content)]


def attempt(problem: Problem, content: str, **changes):
    return SolveRequest("", 0, 1, (), "S0", problem, **changes), [answered(content)]


def validate(subject: TaskVerifier, *responses):
    return [proposal for proposals in subject.validate(responses) for proposal in proposals]


def judge(subject: TaskVerifier, *responses):
    return [result for results in subject.judge(responses) for result in results]


def problem(task: TaskType, identity: str = "p0") -> Problem:
    if task is not F:
        return Problem(identity, task, PROGRAM, (Example("3", "4"),))
    return Problem(identity, F, PROGRAM, (Example("1", "2"),), (Example("2", "3"), Example("5", "6")), "adds one")


SOLUTION = {I: fenced("input", "3"), O: fenced("output", "4"), F: fenced("python", PROGRAM)}

# -- validation ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", [I, O])
def test_a_valid_proposal_becomes_a_problem_with_the_computed_output(task):
    pool = ScriptedPool()
    (proposal,) = validate(verifier(pool), proposed(task, inputs=" 3 "))
    assert proposal.problem == Problem("p-0", task, PROGRAM, (Example("3", "4"),), author="T0", step=7)
    assert (proposal.author, proposal.group, proposal.formatted, proposal.rejection) == ("T0", 0, True, "")
    assert proposal.measures == Measures((1, 1, 2, 1), PROGRAM)


def test_all_proposals_share_two_batches_and_everything_is_asked_twice():
    pool = ScriptedPool()
    validate(verifier(pool), *(proposed(inputs=str(n)) for n in range(20)), described("1", "2", "3", "4"))
    assert [twice for _, twice in pool.batches] == [True, True]
    assert {job.mode for job in pool.batches[1][0]} == {"run"} and len(pool.batches[1][0]) == 21
    assert all(job.rules == AZR_BANNED_IMPORTS for job in pool.batches[1][0])


def test_an_unformatted_proposal_is_rejected_before_anything_runs():
    pool = ScriptedPool()
    request, (response,) = proposed()
    (proposal,) = validate(verifier(pool), (request, [generation(response.text.replace("</think>", ""))]))
    assert (proposal.formatted, proposal.problem, proposal.rejection) == (False, None, "format")
    assert pool.ran() == []


def test_a_program_that_cannot_be_measured_is_rejected_and_never_run():
    pool = ScriptedPool({Job("measure", program=PROGRAM): [Verdict(VerdictKind.ERROR, "syntax")]})
    (proposal,) = validate(verifier(pool), proposed())
    assert proposal.rejection == "error:syntax" and not any(job.mode == "run" for job in pool.ran())


@pytest.mark.parametrize("smuggled", ["'</think>'", "'```'", "'Assistant:'"])
def test_markup_that_appears_only_when_values_are_written_out_is_rejected(smuggled):
    parse, run = Job("parse", texts=("3",), as_inputs=True), run_job(PROGRAM, ("3",))
    for job in (parse, run):
        (proposal,) = validate(verifier(ScriptedPool({job: [ok(smuggled)]})), proposed())
        assert proposal.rejection == "contains_markup"


def test_code_f_shows_half_of_the_pairs_and_hides_the_rest():
    request, (response,) = described("1", "2", "3", "4")
    responses = request, [response] * 12
    problems = [proposal.problem for proposal in validate(verifier(ScriptedPool()), responses)]
    pairs = {Example(str(n), str(n + 1)) for n in (1, 2, 3, 4)}
    for item in problems:
        assert item is not None and len(item.shown) == len(item.hidden) == 2 and set(item.shown + item.hidden) == pairs
        assert (item.program, item.message, item.author) == (PROGRAM, "adds one", "T0")
    assert len({item.hidden for item in problems if item}) > 2, "which pairs are hidden depends on the problem"
    again = [proposal.problem for proposal in validate(verifier(ScriptedPool()), responses)]
    other = [proposal.problem for proposal in validate(verifier(ScriptedPool(), seed=1), responses)]
    assert again == problems and other != problems
    own = replace(request, seed=7), [response] * 12
    seeded = [[proposal.problem for proposal in validate(verifier(ScriptedPool(), seed=seed), own)] for seed in (0, 1)]
    assert seeded[0] == seeded[1] != problems, "a request's own seed counts, not the run's"


def test_of_an_odd_number_of_pairs_the_larger_half_is_hidden():
    five = TaskVerifier(ScriptedPool(), {"python": replace(load_prompts("compact"), inputs_wanted=5)}, TASKS, 0)
    (proposal,) = validate(five, described("1", "2", "3", "4", "5"))
    assert (len(proposal.problem.shown), len(proposal.problem.hidden)) == (2, 3)


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        (("1", "2", "3", "1"), "duplicate_inputs"),
        (("1 2", "12", "3", "4"), "duplicate_inputs"),
        (("True", "1", "3", "4"), "duplicate_inputs"),
        (("1", "2", "3"), "wrong_input_count"),
    ],
)
def test_repeated_or_missing_inputs_are_rejected(inputs, reason):
    (proposal,) = validate(verifier(ScriptedPool()), described(*inputs))
    assert proposal.rejection == reason


def test_outputs_that_are_all_equal_are_rejected():
    job = run_job(PROGRAM, ("1", "2", "3", "4"))
    (proposal,) = validate(verifier(ScriptedPool({job: [ok("1", "1", "True", "1")]})), described("1", "2", "3", "4"))
    assert proposal.rejection == "constant_outputs"
    (proposal,) = validate(verifier(ScriptedPool({job: [ok("1", "1", "True", "1")]}), "strict"), described("1", "2", "3", "4"))
    assert proposal.rejection == "", "strict equality tells True from 1"


def test_a_message_that_contains_the_program_is_rejected():
    (proposal,) = validate(verifier(ScriptedPool()), described("1", "2", "3", "4", message="def f(x): return x + 1"))
    assert proposal.rejection == "message_leaks_program"


@pytest.mark.parametrize(("task", "shown_as"), [(I, ["solve", "code_i", "code_f"]), (O, ["solve", "code_o", "code_f"]), (F, ["solve"])])
def test_a_problem_that_no_prompt_could_show_is_rejected(task, shown_as):
    response = described("1", "2", "3", "4") if task is F else proposed(task)
    for longest in range(len(shown_as)):
        prompts: list[str] = []

        def fits(prompt: str, longest=longest, prompts=prompts) -> bool:
            prompts.append(prompt)
            return len(prompts) <= longest

        subject = TaskVerifier(ScriptedPool(), {"python": replace(load_prompts("compact"), inputs_wanted=4)}, TASKS, 0, fits)
        (proposal,) = validate(subject, response)
        assert (proposal.problem, proposal.measures, proposal.rejection) == (None, None, "prompt_too_long") and proposal.formatted


def test_a_problem_with_a_control_token_of_the_base_is_rejected():
    prompts = {"python": replace(load_prompts("compact"), inputs_wanted=4)}
    (proposal,) = validate(TaskVerifier(ScriptedPool(), prompts, TASKS, 0, control_tokens=["<s>", "</s>"]), proposed(O))
    assert proposal.problem
    response = described("1", "2", "3", "4", message="it ends </s>here")
    for token in ("</s>", "x + 1", "2", "5"):  # in the message, in the program, a shown pair, a hidden output
        subject = TaskVerifier(ScriptedPool(), prompts, TasksConfig(code_f_split="fixed"), 0, control_tokens=["<s>", token])
        (proposal,) = validate(subject, response)
        assert (proposal.problem, proposal.rejection) == (None, "contains_markup")


# -- judging -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", CODE_TYPES)
def test_a_right_answer_is_correct(task):
    (result,) = judge(verifier(ScriptedPool()), attempt(problem(task), SOLUTION[task], from_buffer=True))
    assert (result.correct, result.formatted, result.reason, result.void, result.from_buffer) == (True, True, "", False, True)
    assert (result.student, result.problem) == ("S0", problem(task))


@pytest.mark.parametrize(
    ("task", "content", "reason"),
    [
        (I, fenced("input", "4"), "wrong"),
        (O, fenced("output", "5"), "wrong"),
        (O, fenced("output", "0) or (4"), "error:not_literal"),
        (I, fenced("output", "3"), "no_answer"),
        (F, "", "no_answer"),
    ],
)
def test_other_answers_are_incorrect_by_name(task, content, reason):
    (result,) = judge(verifier(ScriptedPool()), attempt(problem(task), content))
    assert (result.correct, result.formatted, result.reason) == (False, True, reason)


def test_an_unformatted_answer_is_not_graded():
    (result,) = judge(verifier(ScriptedPool()), (attempt(problem(O), "")[0], [generation(f"<answer>{SOLUTION[O]}</answer>")]))
    assert (result.correct, result.formatted, result.reason) == (False, False, "format")


def test_code_f_runs_the_answer_on_hidden_inputs_only_and_all_must_match():
    answer = "def f(n):\n    return 3"
    pool = ScriptedPool({run_job(answer, ("2", "5")): [ok("3", "3")]})
    (result,) = judge(verifier(pool), attempt(problem(F), fenced("python", answer)))
    assert (result.correct, result.reason) == (False, "wrong")
    assert [job.texts for job in pool.ran() if job.program == answer] == [("2", "5")]


def test_equal_answers_run_once_and_after_the_gold_values():
    pool = ScriptedPool()
    entries = [attempt(problem(task, f"{task}"), SOLUTION[task].replace("3", "9") if task is I else SOLUTION[task]) for task in CODE_TYPES]
    results = judge(verifier(pool), *entries * 8)
    assert [result.correct for result in results] == [False, True, True] * 8
    (gold, gold_twice), (answers, answers_twice) = pool.batches
    assert gold_twice and answers_twice, "an answer that is right by chance is not correct"
    assert len(gold) == 5  # one run and one parse for each distinct set of pairs, and the program of code_f as an answer
    assert answers == [run_job(PROGRAM, ("9",))]  # the texts of the other answers are among the gold values


def test_the_pool_is_told_the_values_of_correct_answers_and_no_child_is():
    """A program of two problems, whose inputs are answered alike, is right for one of them."""
    other = Problem("p1", I, PROGRAM, (Example("True", "2"),))
    pool = ScriptedPool({run_job(PROGRAM, ("True",)): [ok("2")]})
    results = judge(verifier(pool), *(attempt(asked, fenced("input", text)) for asked in (problem(I), other) for text in ("1", " 3 ")))
    assert [result.correct for result in results] == [False, True, True, False]
    assert pool.expected == {run_job(PROGRAM, (text,)): {("4",), ("2",)} for text in ("1", "3")}
    assert all("4" not in job.texts for job in pool.ran() if job.mode == "run")


def test_answers_to_a_void_problem_are_not_run():
    pool = ScriptedPool({run_job(PROGRAM, ("3",)): [TIMEOUT]})
    (result,) = judge(verifier(pool), attempt(problem(I), fenced("input", "8")))
    assert result.void and run_job(PROGRAM, ("8",)) not in pool.ran()


def test_proposals_come_before_attempts_in_the_pool():
    pool = ScriptedPool()
    validate(verifier(pool), proposed())
    judge(verifier(pool), attempt(problem(I), fenced("input", "8")))
    assert pool.urgent == [True, True, False, False]


@pytest.mark.parametrize("again", [ok("5"), TIMEOUT])
def test_a_gold_value_that_does_not_reproduce_voids_every_attempt(again):
    pool = ScriptedPool({run_job(PROGRAM, ("3",)): [again]})
    unstable, stable = problem(O), Problem("p1", O, PROGRAM, (Example("8", "9"),))
    entries = [attempt(unstable, SOLUTION[O]), attempt(unstable, ""), attempt(stable, fenced("output", "9"))]
    results = judge(verifier(pool), *entries)
    assert [(result.void, result.correct, result.reason) for result in results] == [
        (True, False, "gold_not_reproduced"),
        (True, False, "gold_not_reproduced"),
        (False, True, ""),
    ]


# -- the sandbox's own faults, and measures ------------------------------------------------------------------------


def test_a_fault_of_the_sandbox_is_repeated_once():
    job = run_job(PROGRAM, ("3",))
    pool = ScriptedPool({job: [BROKEN]})
    valid = validate(verifier(pool), proposed(), proposed(inputs="4"))
    assert all(proposal.problem for proposal in valid)
    assert pool.batches[-1] == ([job], True), "only what failed is repeated, again twice"


def test_a_lasting_fault_of_the_sandbox_stops_instead_of_paying():
    pool = ScriptedPool({run_job(PROGRAM, ("3",)): [BROKEN, BROKEN]})
    with pytest.raises(SandboxFault, match="zygote_lost"):
        validate(verifier(pool), proposed())
    with pytest.raises(SandboxFault):
        judge(verifier(ScriptedPool({Job("parse", texts=("4",)): [BROKEN, BROKEN]})), attempt(problem(O), SOLUTION[O]))


# -- settings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("extraction", "correct"), [("strict", False), ("lenient", True)])
def test_an_answer_outside_its_fence_counts_only_if_the_settings_say_so_and_is_always_noticed(extraction, correct):
    subject = TaskVerifier(ScriptedPool(), {"python": load_prompts("compact")}, TasksConfig(extraction=extraction), 0)  # type: ignore[arg-type]
    texts = ["the output is 4.", fenced("output", "4"), " "]
    loose, fenced_one, nothing = judge(subject, *(attempt(problem(O), text) for text in texts))
    assert (loose.correct, loose.lenient, loose.reason) == (correct, True, "" if correct else "no_answer")
    assert (fenced_one.correct, fenced_one.lenient) == (True, False)
    assert (nothing.correct, nothing.lenient, nothing.reason) == (False, False, "no_answer")


def test_azrs_fixed_halves_hide_the_last_pairs():
    prompts = replace(load_prompts("compact"), inputs_wanted=4)
    (fixed,) = validate(
        TaskVerifier(ScriptedPool(), {"python": prompts}, TasksConfig(code_f_split="fixed"), 0), described("1", "2", "3", "4")
    )
    assert [pair.inputs for pair in fixed.problem.shown] == ["1", "2"] and [pair.inputs for pair in fixed.problem.hidden] == ["3", "4"]
