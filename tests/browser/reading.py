"""What tests read off a page, and how they wait for it."""

import re
from typing import Any


def until(tab: Any, script: str, seconds: float = 10.0) -> None:
    """Wait until the script's value is true. `Page.wait_for_function` evaluates inside the page, which the page's policy forbids."""
    for _ in range(int(seconds / 0.05)):
        if tab.evaluate(script):
            return
        tab.wait_for_timeout(50)
    raise AssertionError(f"still not true after {seconds:g} s: {script}")


def count_found(tab: Any) -> int:
    return int(tab.inner_text("#found").split()[0].replace(",", ""))


def opened(tab: Any, entry: str) -> None:
    """Click a problem in the list and wait for it: the address changes before the page does."""
    tab.click(f'#list a[href$="/{entry}"]')
    tab.wait_for_selector(f'#list a[aria-current="true"][href$="/{entry}"]')


def title(tab: Any) -> str:
    return tab.inner_text("#problem h3")


def answer_word(answer: dict) -> str:
    return "void" if answer["void"] else "correct" if answer["correct"] else answer["reason"]


def colour(tab: Any, name: str) -> tuple[int, ...]:
    """Return a colour of the style sheet as red, green and blue in use."""
    script = "name => (document.body.style.outlineColor = `var(${name})`, getComputedStyle(document.body).outlineColor)"
    return tuple(map(int, re.findall(r"\d+", tab.evaluate(script, name))[:3]))
