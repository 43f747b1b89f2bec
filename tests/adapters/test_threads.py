"""torch has its number of threads back after every block that needs another."""

from contextlib import suppress

import torch

from populora.adapters.threads import torch_threads


def test_the_number_holds_in_the_block_alone_also_if_it_fails():
    before = torch.get_num_threads()
    with suppress(KeyError), torch_threads(before + 2):
        assert torch.get_num_threads() == before + 2
        raise KeyError
    assert torch.get_num_threads() == before


def test_zero_leaves_torchs_own_choice():
    before = torch.get_num_threads()
    with torch_threads(0):
        assert torch.get_num_threads() == before
