"""What the corpus is made of in each phase of training.

Early, most answers reason, because that is how a small model learns to execute at all; at the end about half are direct, so
the finished base reasons only as a minority habit that pays: room for RL to learn.
"""

from dataclasses import dataclass, replace
from typing import Any

MAX_TRACE_CHARS = 320
MESSAGES = (45, 30, 25)
"""Weights of the levels of detail of a message: names and constants, constants, vague."""


@dataclass(frozen=True)
class Mixture:
    """What the corpus is made of in one phase of training: weights of document kinds, answer styles and statement budgets."""

    kinds: dict[str, int]
    styles: dict[str, int]
    budgets: dict[int, int]
    wrong_guesses: tuple[float, ...] = (0.5, 0.3, 0.2)
    """Probabilities of trying 0, 1, 2, … other inputs before the right one in full reasoning about code_i; those that happen to give
    the same output or have no room are left out."""
    search_chars: int = MAX_TRACE_CHARS
    """Longest text of such a search, line ends between guesses not counted."""
    wrong_arguments_weight: float = 1.0
    """Loss weight of the arguments of a wrong guess. At 0 only right guesses are learned, so each new guess of the trained model is
    as good as a direct answer, and a search that checks its guesses is better than one."""
    wrong_names_weight: float = 1.0
    """Loss weight of the parameter names before those arguments. The first of them is also the decision to guess (again) at all,
    so at 0 the model reasons about code_i too seldom."""
    last_guess_checked: bool = True
    """Whether a search always makes room for the execution of its last guess; otherwise it answers at once where that does not fit
    into ``search_chars``."""
    propose_weight: float = 0.4
    """Loss weight of a proposer's response. Most of its entropy is the generator's randomness, which cannot be learned; at full weight it
    drowns the gradient of execution, so that comes last."""
    solve_budgets: dict[int, int] | None = None
    """Statement budgets of the programs to solve, where they are not those of the proposals' references (``budgets``)."""
    spread_inputs: bool = False
    """Whether a proposal of code_f takes its inputs from all over their domain: in ascending order none then is a copy of the one
    before, and their outputs are seldom all equal."""
    short_messages: tuple[int, int, int] = MESSAGES
    long_messages: tuple[int, int, int] = MESSAGES
    """Weights of the levels of detail (`describe.LEVELS`) at which a proposal of code_f tells a program of the smallest
    and of the largest budget; in between they are interpolated."""
    distinct_outputs: int = 2
    """In SQL: different outputs that the databases of a proposal of sql_f give at least."""
    empty_results: bool = False
    """In SQL: whether solvers of sql_o and sql_i also see results without rows, where one of a statement's databases gives one."""
    rich_results: bool = False
    """In SQL: whether proposals of sql_o and sql_i take, the longer the statement the more often, the database with the largest result."""
    small_guesses: bool = False
    """In SQL: whether a wrong guess is as small as a right one: no row of it is without effect."""
    other: "Mixture | None" = None
    other_share: float = 0.0
    """Another mixture that this share of the documents comes from, such as one of another language."""


_KINDS = ("solve code_o", "solve code_i", "solve code_f", "propose code_o", "propose code_i", "propose code_f")


def _kinds(*weights: int) -> dict[str, int]:
    return dict(zip(_KINDS, weights, strict=True))


_ALL_KINDS = _kinds(30, 22, 20, 10, 10, 8)
_ALL_BUDGETS = {1: 14, 2: 17, 3: 18, 4: 16, 5: 13, 6: 10, 7: 7, 8: 5}
SHORT = Mixture(_ALL_KINDS, {"direct": 12, "brief": 6, "full": 82}, {1: 35, 2: 30, 3: 18, 4: 9, 5: 4, 6: 2, 7: 1, 8: 1})
"""First: short programs, nearly always with reasoning, so that binding a name and doing one operation are learned early."""
EXECUTION = Mixture(
    _kinds(60, 20, 6, 5, 5, 4),
    {"direct": 10, "brief": 5, "full": 85},
    {1: 22, 2: 22, 3: 20, 4: 14, 5: 10, 6: 6, 7: 4, 8: 2},
)
"""Then mostly traces of single executions: every other skill builds on this one, and it comes with the number of traces seen."""
REASONING = Mixture(_ALL_KINDS, {"direct": 15, "brief": 8, "full": 77}, _ALL_BUDGETS)
"""Then everything, at all lengths."""
FINAL = Mixture(_ALL_KINDS, {"direct": 54, "brief": 6, "full": 40}, _ALL_BUDGETS, propose_weight=1.0)
"""Last in the first stage: most answers are direct."""
_SEARCH = {"wrong_guesses": (0.4, 0.25, 0.15, 0.12, 0.08), "search_chars": 400}
SEARCHING = Mixture(_kinds(30, 32, 16, 8, 8, 6), {"direct": 20, "brief": 4, "full": 76}, _ALL_BUDGETS, **_SEARCH)
"""In the second stage: longer searches."""
FINISHED = Mixture(_kinds(27, 23, 16, 13, 12, 9), {"direct": 52, "brief": 4, "full": 44}, _ALL_BUDGETS, propose_weight=1.0, **_SEARCH)
"""Its end: most answers are direct again, and more proposals, for their validity."""
_GUESS = {**_SEARCH, "search_chars": 370, "wrong_arguments_weight": 0.0, "last_guess_checked": False, "propose_weight": 1.0}
GUESSING = Mixture(_kinds(27, 28, 14, 12, 12, 7), {"direct": 20, "brief": 3, "full": 77}, _ALL_BUDGETS, wrong_names_weight=0.0, **_GUESS)
"""In the third stage: searches that learn from right guesses alone, and proposals at full weight from the start."""
SETTLING = Mixture(_kinds(24, 22, 13, 16, 16, 9), {"direct": 43, "brief": 3, "full": 54}, _ALL_BUDGETS, wrong_names_weight=0.0, **_GUESS)
"""Then nearly as many direct answers as others."""
SETTLED = Mixture(_kinds(22, 22, 14, 15, 16, 11), {"direct": 45, "brief": 3, "full": 52}, _ALL_BUDGETS, **_GUESS)
"""Last, the decision to guess is learned too. The trained model reasons less often than its corpus: in a batch of short direct
answers each token has more weight, and so has the choice."""
SUMMARISING = Mixture(
    _kinds(20, 22, 12, 16, 16, 14),
    {"direct": 47, "brief": 3, "full": 50},
    _ALL_BUDGETS,
    **_GUESS,
    solve_budgets={1: 18, 2: 20, 3: 19, 4: 15, 5: 11, 6: 8, 7: 5, 8: 4},
    spread_inputs=True,
    short_messages=(80, 15, 5),
    long_messages=(30, 45, 25),
)
"""In the fourth stage: proposals of code_f that tell a short program whole and leave out more of a long one. With the same detail at
all lengths short programs with vague messages paid best: of the long ones most were solved by nobody. Programs to solve are
shorter than those to propose from."""
_SQL_KINDS: tuple[str, ...] = ("solve sql_o", "solve sql_i", "solve sql_f", "propose sql_o", "propose sql_i", "propose sql_f")
_SQL: dict[str, Any] = {
    "budgets": _ALL_BUDGETS, "wrong_guesses": (0.5, 0.35, 0.15), "search_chars": 355, "wrong_arguments_weight": 0.0,
    "wrong_names_weight": 0.0, "last_guess_checked": False, "spread_inputs": True,
}  # fmt: skip


def _sql(*weights: int, direct: int, **options: Any) -> Mixture:
    kinds: dict[str, int] = dict(zip(_SQL_KINDS, weights, strict=True))
    return Mixture(kinds, {"direct": direct, "full": 100 - direct}, **(_SQL | options))


SQL_SHORT = _sql(46, 20, 14, 7, 7, 6, direct=12, budgets=SHORT.budgets)
"""SQL goes the same way: first short statements, nearly always with reasoning."""
SQL_REASONING = _sql(34, 26, 16, 8, 8, 8, direct=18)
"""Then everything, at all lengths."""
SQL_SETTLED = _sql(
    22, 22, 14, 14, 15, 13, direct=47, propose_weight=1.0, wrong_names_weight=1.0, solve_budgets=SUMMARISING.solve_budgets,
    short_messages=SUMMARISING.short_messages, long_messages=SUMMARISING.long_messages,
)  # fmt: skip
"""Last, about half of the answers are direct, and longer statements are told in less detail."""


SQL_PROPOSING = replace(
    SQL_SETTLED,
    kinds=dict(zip(_SQL_KINDS, (28, 22, 10, 13, 13, 14), strict=True)),
    solve_budgets={1: 10, 2: 14, 3: 17, 4: 17, 5: 15, 6: 12, 7: 9, 8: 6},
    short_messages=(75, 20, 5),
    long_messages=(0, 35, 65),
    wrong_guesses=(0.3, 0.4, 0.3),
    distinct_outputs=3,
    empty_results=True,
    rich_results=True,
    small_guesses=True,
)
"""In the third stage: longer statements to solve, since only few attempts at these were right; vaguer messages of long ones, since most
were solved always; proposals of sql_f with outputs that differ more; searches that are wrong more often at first. Nobody had ever
answered that there are no rows, and long statements with a result of one row were as easy as short ones."""

SQL_LONG = replace(
    SQL_PROPOSING,
    kinds=dict(zip(_SQL_KINDS, (20, 24, 8, 18, 18, 12), strict=True)),
    budgets={1: 6, 2: 9, 3: 12, 4: 14, 5: 16, 6: 16, 7: 14, 8: 13},
    solve_budgets={1: 24, 2: 22, 3: 16, 4: 12, 5: 9, 6: 7, 7: 6, 8: 4},
    short_messages=(85, 12, 3),
)
"""In the fourth stage: more and longer proposals, since more of the longest were invalid than of others, which outweighed what their
difficulty earned; and shorter statements to solve, since even of the shortest only a minority was solved always."""


def _both(mixture: Mixture, share: float) -> Mixture:
    """Python beside it, as the tiny base last saw it, so that what it knows is kept."""
    return replace(mixture, other=SUMMARISING, other_share=share)


MIXTURES = {
    "short": SHORT, "execution": EXECUTION, "reasoning": REASONING, "final": FINAL, "searching": SEARCHING, "finished": FINISHED,
    "guessing": GUESSING, "settling": SETTLING, "settled": SETTLED, "summarising": SUMMARISING,
    "sql_short": SQL_SHORT, "sql_reasoning": SQL_REASONING, "sql_settled": SQL_SETTLED,
    "sql_proposing": SQL_PROPOSING, "both_proposing": _both(SQL_PROPOSING, 0.35),
    "sql_long": SQL_LONG, "both_long": _both(SQL_LONG, 0.3),
    "both_short": _both(SQL_SHORT, 0.2), "both_reasoning": _both(SQL_REASONING, 0.25), "both_settled": _both(SQL_SETTLED, 0.35),
}  # fmt: skip
