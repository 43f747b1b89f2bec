"""Random typed expressions and conditions: the leaves of the programs that ``grammar.py`` grows.

A variable's name tells its type (``x y z n r`` int, ``a b q`` list, ``s t u`` str, ``d`` dict, ``i v`` loop ints, ``c``
character): the cheapest way to let a one-million-parameter model write programs that do not raise.
"""

from dataclasses import dataclass, field

import numpy as np

INTS, LISTS, STRS, DICTS = ("x", "y", "z", "n", "r"), ("a", "b", "q"), ("s", "t", "u"), ("d",)
NAMES = {"int": INTS, "list": LISTS, "str": STRS, "dict": DICTS}
TYPE_OF = {"m": "int", **{name: kind for kind, names in NAMES.items() for name in names}}  # m: what the helper takes
LETTERS = "abcde"


@dataclass
class Scope:
    """What a program under construction may use: visible names by type, names it has changed, helpers it defined."""

    rng: np.random.Generator
    names: list[str]
    loop_ints: list[str] = field(default_factory=list)
    loop_chars: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    helpers: list[str] = field(default_factory=list)
    busy: list[str] = field(default_factory=list)
    """Names that an enclosing loop runs over: its body leaves them alone, or it might never end."""

    def have(self, kind: str) -> list[str]:
        return [name for name in self.names if TYPE_OF[name] == kind]

    def free(self, kind: str) -> list[str]:
        """Names of a type that may be assigned here."""
        return [name for name in self.have(kind) if name not in self.busy]

    def pick(self, options):
        return options[int(self.rng.integers(len(options)))]

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def number(self, low: int = 1, high: int = 9) -> int:
        return int(self.rng.integers(low, high + 1))

    def fresh_or_old(self, kind: str) -> str:
        """A target for an assignment: a new name of this type while there is one, or an old one."""
        unused = [name for name in NAMES[kind] if name not in self.names]
        old = self.have(kind)
        if unused and (not old or self.chance(0.4)):
            return unused[0]
        return self.pick(old)

    def set(self, name: str) -> None:
        if name not in self.names:
            self.names.append(name)
        if name in self.changed:
            self.changed.remove(name)
        self.changed.append(name)


def int_atom(scope: Scope) -> str:
    """A plain integer name most of the time: every nested call is one more thing to evaluate in a single step."""
    plain = [*scope.have("int"), *scope.loop_ints * 2]
    if plain and scope.chance(0.9):
        return scope.pick(plain)
    options: list[str] = []
    for a in scope.have("list"):
        options += [f"len({a})", f"len({a})", f"sum({a})", f"{a}[0]"]
        if scope.have("int"):
            options.append(f"{a}.count({scope.pick(scope.have('int'))})")
    for s in scope.have("str"):
        options += [f"len({s})", f"{s}.count('{scope.pick(LETTERS)}')"]
        options += [f"{s}.count({c})" for c in scope.loop_chars]
    for d in scope.have("dict"):
        options += [f"len({d})", f"sum({d}.values())", f"{d}.get('{scope.pick(LETTERS)}', {scope.number(0, 5)})"]
    return scope.pick(options or plain or [str(scope.number())])


def int_operand(scope: Scope) -> str:
    """The right-hand side of an operation: a name or a small constant."""
    plain = [*scope.have("int"), *scope.loop_ints * 2]
    return scope.pick(plain) if plain and scope.chance(0.45) else str(scope.number())


def int_expr(scope: Scope) -> str:
    atom, other = int_atom(scope), int_operand(scope)
    if scope.helpers and scope.chance(0.6):
        return f"g({atom})"
    if not atom.isalnum() and scope.chance(0.7):
        return atom
    form = scope.number(0, 9)
    if form <= 3:
        return f"{atom} + {other}"
    if form <= 5:
        return f"{atom} - {other}"
    if form == 6:
        return f"{atom} * {scope.number(2, 3)}"
    if form == 7:
        return f"{atom} {scope.pick(('%', '//'))} {scope.number(2, 4)}"
    if form == 8 and other != atom:
        return f"{scope.pick(('max', 'min'))}({atom}, {other})"
    return f"abs({atom} - {other if other != atom else scope.number()})"


def list_expr(scope: Scope, a: str) -> str:
    number = int_atom(scope) if scope.chance(0.5) else str(scope.number())
    forms = (
        f"{a} + [{number}]", f"[{number}] + {a}", f"{a}[::-1]", f"sorted({a})", f"{a}[1:]", f"{a}[:{scope.number(2, 3)}]",
        f"[v + {scope.number(1, 5)} for v in {a}]", f"[v * 2 for v in {a}]", f"[v for v in {a} if v > {scope.number(2, 6)}]",
        f"[v for v in {a} if v % 2 == {scope.number(0, 1)}]", f"[v % {scope.number(2, 5)} for v in {a}]", f"{a}[:-1]",
    )  # fmt: skip
    others = [b for b in scope.have("list") if b != a]
    if others and scope.chance(0.25):
        return f"{a} + {scope.pick(others)}"
    if scope.helpers and scope.chance(0.4):
        return f"[g(v) for v in {a}]"
    return scope.pick(forms)


def str_expr(scope: Scope, s: str) -> str:
    letter, other = scope.pick(LETTERS), scope.pick(LETTERS)
    forms = (
        f"{s} + '{letter}'", f"'{letter}' + {s}", f"{s}[::-1]", f"{s}.upper()", f"{s}.replace('{letter}', '{other}')",
        f"{s}[1:]", f"{s}[:{scope.number(2, 3)}]", f"{s} * 2", f"''.join(sorted({s}))", f"{s}[:-1]",
        f"''.join([c for c in {s} if c != '{letter}'])", f"{s} + {s}[:1]",
    )  # fmt: skip
    others = [t for t in scope.have("str") if t != s]
    if others and scope.chance(0.3):
        return f"{s} + {scope.pick(others)}"
    if scope.have("int") and scope.chance(0.15):
        return f"{s} + str({scope.pick(scope.have('int'))})"
    return scope.pick(forms)


def condition(scope: Scope) -> str:
    options = []
    for _ in range(2):
        atom = int_atom(scope)
        options += [f"{atom} > {scope.number(1, 7)}", f"{atom} < {scope.number(2, 8)}"]
        options += [f"{atom} % 2 == {scope.number(0, 1)}", f"{atom} % 3 == {scope.number(0, 2)}"]
    for s in scope.have("str"):
        options += [f"'{scope.pick(LETTERS)}' in {s}"] * 2
    for c in scope.loop_chars:
        options += [f"{c} == '{scope.pick(LETTERS)}'", f"{c} in '{scope.pick(('ab', 'ace', 'bd', 'cde'))}'"] * 4
    for a in scope.have("list"):
        options.append(f"{scope.number(1, 5) if not scope.have('int') else scope.pick(scope.have('int'))} in {a}")
    first = scope.pick(options)
    second = scope.pick(options)
    if second != first and scope.chance(0.08):
        return f"{first} {scope.pick(('and', 'or'))} {second}"
    return f"not {first}" if scope.chance(0.04) and " in " in first else first
