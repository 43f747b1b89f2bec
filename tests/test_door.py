"""The package's own names: what they are, what their examples print, and that importing them is cheap."""

from __future__ import annotations

import doctest
import subprocess
import sys

import pytest

import populora
from populora.runs import reader
from populora.tasks import checks


@pytest.mark.parametrize(("module", "examples"), [(populora, 10), (checks, 3), (reader, 2)])
def test_the_examples_of_the_door_print_what_they_say(module, examples):
    failed, tried = doctest.testmod(
        module, extraglobs={"populora": populora}, optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
    )
    assert tried >= examples and failed == 0


def test_importing_populora_loads_no_library_of_others():
    script = "import sys; import populora; print(sorted({'numpy', 'torch', 'pyarrow', 'rich', 'transformers'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_every_name_is_there_and_another_is_refused_with_those_that_are():
    assert all(getattr(populora, name) is not None for name in populora.__all__)
    with pytest.raises(AttributeError, match="module 'populora' has no attribute 'Trainer': it has Adapter, Config"):
        _ = populora.Trainer
