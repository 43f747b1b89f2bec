"""The figures that are panels of logged metrics over steps, as a table: dynamics, complexity, diagnostics, length and more."""

from __future__ import annotations

from populora.report.figures.panels import Panel, Panels

TASKS = {"code_i": "infer input", "code_o": "infer output", "code_f": "infer function"}
_SOLVE = "Solve rate: share of correct answers to the step's own problems, void ones and those that only fill a batch left out."
_VALID = "Validity: share of proposals that the sandbox accepts."
FIGURES = (
    Panels(
        "dynamics", "Training dynamics",
        f"{_SOLVE} Format rate: share of answers in the format asked for. Difficulty: 1 - mean rho over valid problems. {_VALID} The "
        "single agent's difficulty is its own failure rate; a teacher's is its student's.",
        (
            Panel("solver: solve rate", "student/solve_rate", share=True), Panel("solver: format rate", "student/format_rate", share=True),
            Panel("teacher: difficulty", "teacher/difficulty", share=True), Panel("teacher: validity", "teacher/validity", share=True),
        ),
        4, "Figure 3 (training dynamics)",
    ),
    Panels(
        "dynamics_per_type", "Training dynamics by type", f"{_SOLVE} {_VALID}",
        tuple(
            Panel(f"{task}: {title}", metric, task, share=True)
            for task in TASKS
            for title, metric in (("solve rate", "student/solve_rate"), ("validity", "teacher/validity"))
        ),
        2, "Figure: per-type breakdown",
    ),
    Panels(
        "solve_rate_by_type", "Solve rate by problem type", _SOLVE,
        tuple(Panel(f"{task} ({title})", "student/solve_rate", task, share=True) for task, title in TASKS.items()),
        3, "Figure: solve rate by problem type",
    ),
    Panels(
        "complexity", "Program complexity",
        "Means over the valid programs that were written in the step (code_f is given its program). AST depth: levels under the module. "
        "Cyclomatic: 1 + if, elif, for, while, except, and, or, assert and comprehensions' for. Lines with code. Variables: names bound.",
        (
            Panel("AST depth", "teacher/ast_depth"), Panel("cyclomatic complexity", "teacher/cyclomatic"),
            Panel("lines of code", "teacher/loc"), Panel("variables", "teacher/variables"),
        ),
        4, "Figure 4 (program complexity)",
    ),
    Panels(
        "diagnostics", "Training diagnostics",
        "Norm of a member's gradient before clipping; its policy-gradient loss; mean entropy (nats a token) of the distributions that "
        "proposals and answers were sampled from. There is no KL penalty, so no KL to a reference. Where a batch is used once, before any "
        "update, the normalised advantages sum to nearly nothing, and so does the loss: it is no measure of progress.",
        (
            Panel("gradient norm", "learner/grad_norm"), Panel("policy-gradient loss", "learner/loss"),
            Panel("entropy of proposals, nats", "teacher/entropy"),
            Panel("entropy of answers, nats", "student/entropy"),
        ),
        4, "Figure: training diagnostics",
    ),
    Panels(
        "response_length", "Response length", "Mean tokens of a response, the stop token included.",
        (
            Panel("proposals, tokens", "teacher/response_length"), Panel("answers, tokens", "student/response_length"),
            Panel("answers cut at the limit", "student/clipped", zero=True),
        ),
        3, "Figure: response length",
    ),
    Panels(
        "population_size", "Population size",
        f"{_SOLVE} Difficulty: 1 - mean rho over valid problems. Complexity as in its own figure.",
        (
            Panel("solver: solve rate", "student/solve_rate", share=True), Panel("teacher: difficulty", "teacher/difficulty", share=True),
            Panel("cyclomatic complexity", "teacher/cyclomatic"), Panel("lines of code", "teacher/loc"),
        ),
        4, "Figure 7 (population-size ablation)",
    ),
    Panels(
        "reward_hacking", "Signs of reward hacking",
        "What pays without being harder or better. A teacher is paid for failures: for answers out of format, for repeated programs, for "
        "problems nobody or everybody solves (no pay, but no signal either). Void: the gold value did not reproduce. "
        "Solved outside the fence: correct answers that count only under lenient extraction.",
        (
            Panel("answers out of format, by author", "teacher/rho_format_fail", zero=True),
            Panel("programs that repeat one", "teacher/duplicates", zero=True),
            Panel("problems nobody solves", "teacher/rho_zero", zero=True), Panel("problems always solved", "teacher/rho_one", zero=True),
            Panel("void attempts", "student/void", zero=True), Panel("solved outside the fence", "student/lenient_solved", zero=True),
            Panel("no variance: groups of proposals", "teacher/zero_variance", zero=True),
            Panel("no variance: groups of answers", "student/zero_variance", zero=True),
        ),
        4,
    ),
    Panels(
        "sampler_gap", "Sampler against learner",
        "Per member, over the tokens of its batch: mean KL and mean and largest difference of log-probabilities between what sampled "
        "and what learns, and the effective sample size under truncated importance weights (1: no gap).",
        (
            Panel("KL, nats a token", "learner/kl"), Panel("mean difference, nats", "learner/mean_difference"),
            Panel("largest difference, nats", "learner/max_difference"), Panel("effective sample size", "learner/ess", share=True),
        ),
        4, members=True,
    ),
)  # fmt: skip
