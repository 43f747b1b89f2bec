"""SQLite's tokens. The runner executes the normal text, not the model's: no comment or layout can be read in two ways."""

import re

from populora.sandbox.runner import Refused

MAX_CHARS = 20_000
"""Longest statement."""

_TOKEN = re.compile(
    r"""(?P<blank>[ \t\n\f\r]+|--[^\n]*|/\*.*?(?:\*/|\Z))
    |(?P<quoted>'[^']*(?:''[^']*)*'|"[^"]*(?:""[^"]*)*"|`[^`]*(?:``[^`]*)*`|\[[^\]]*\])
    |(?P<parameter>[?:@$])
    |(?P<end>;)
    |[xX]'(?:[0-9a-fA-F]{2})*'
    |(?:0[xX][0-9a-fA-F]+|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?![A-Za-z0-9_$])
    |[A-Za-z_][A-Za-z0-9_$]*
    |->>|->|\|\||<<|>>|<=|>=|<>|==|!=|[-+*/%&|~<>=(),.]""",
    re.DOTALL | re.VERBOSE,
)


def read_tokens(program: str) -> list[str]:
    """Split a statement into tokens, without blanks, comments and semicolons at the end. What is not quoted is in lower case.

    Raises `Refused`: ``unparsable_statement`` for text that SQLite cannot read, or that is too long, ``not_one_select`` for a second
    statement, ``forbidden_construct`` for a parameter.
    """
    if len(program) > MAX_CHARS or "\0" in program or (not program.isprintable() and _has_surrogates(program)):
        raise Refused("unparsable_statement")
    tokens: list[str] = []
    position, ended = 0, False
    while position < len(program):
        token = _TOKEN.match(program, position)
        if token is None:
            raise Refused("unparsable_statement")
        position = token.end()
        if token.lastgroup == "parameter":
            raise Refused("forbidden_construct")
        if token.lastgroup == "end":
            ended = True
        elif token.lastgroup != "blank":
            if ended:
                raise Refused("not_one_select")
            tokens.append(token[0] if token.lastgroup == "quoted" else token[0].lower())
    return tokens


def _has_surrogates(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)
