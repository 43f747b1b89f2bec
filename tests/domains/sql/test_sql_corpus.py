"""The hostile corpus of SQL is well formed."""

from collections import Counter

import tests.domains.sql.corpus  # noqa: F401 - it adds the cases
from tests.domains.sql.corpus_case import CASES


def test_every_case_is_there_once():
    assert len(CASES) >= 300
    assert max(Counter((case.tries, case.name) for case in CASES).values()) == 1
