"""Runners: the modules that execute, read and measure the programs of a domain inside the sandbox.

A runner is a module of functions. It is imported into the sandbox's interpreter, which has the standard library, `populora.sandbox` and
the runner's own ``packages``, and nothing else. It defines

- ``load(program, rules) -> call``: check a program once. ``call(inputs, repetition)`` runs it on one input text and returns the output, a
  plain Python value. A program is called several times on one text, with ``repetition`` 0, 1, …: use it to change whatever the program
  must not depend on. Unequal outputs are ``rejected_nondeterministic``.
- ``parse_inputs(text)``, ``parse_output(text)``: read a text that a model wrote, as a plain value.
- ``write_inputs(value)``, ``write_output(value)``: write a value as the one text that prompts show. Equal values have equal texts.
- ``measure(program) -> (measures, text)``: the domain's complexity measures, integers in its order, and the program without layout and
  comments. Programs with equal texts count as one.

Each of them may raise `Refused` with one of the domain's reasons. Plain values are those of `populora.sandbox.values`, and `Multiset`.
Whatever else a runner raises counts as the program's own exception. A call may set ``doubtful = True`` on itself when agreement of two
runs may be luck; it is then compared in more processes.
"""

from dataclasses import dataclass

PYTHON = "python"
"""The domain whose runner every sandbox has (`populora.sandbox.python_runner`)."""


class Refused(Exception):
    """The verdict is ``error``; the text is its reason."""


class Multiset(list[object]):
    """A list whose order means nothing, such as the rows of a query that orders none. A list with the same elements matches it.

    Only a whole output can be one, and not a part of it."""


@dataclass(frozen=True)
class Runner:
    """The runner of one domain: what the sandbox loads, and the reasons it may refuse with."""

    domain: str
    module: str
    packages: tuple[str, ...] = ()
    """Third-party packages that the module imports."""
    reasons: tuple[str, ...] = ()
    control: tuple[str, str] = ("", "")
    """A harmless program and an input for it. A sandbox that cannot run them does not start."""
    distribution: str = ""
    """What errors name in addition to the domain, such as ``populora-calculator 0.1.0``."""
    contained: bool = False
    """Its programs can neither change the process that runs them nor see more of it than their own input, as a query in a guarded database.
    Several of them then share a process, since a fork costs more than most of them."""

    def __str__(self) -> str:
        return f"the runner '{self.module}' of the domain '{self.domain}'{self.distribution and f' ({self.distribution})'}"
