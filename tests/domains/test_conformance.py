"""The check of a domain, on those that are built in. `test_broken_domains` has a domain for each fault that it finds."""

import pytest

from populora.domains.conformance import check
from populora.domains.registry import BUILT_IN, load_domain


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_domains_conform(name):
    check(load_domain(name))
