"""Paged attention in static shapes: a random history of prompts and rows against plain attention over what each row was given."""

import numpy as np
import pytest
import torch

from populora.engine.model import paged
from populora.engine.model.paged import PagedDecodeAttention, attend_in_pages

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
LAYERS, KV_HEADS, SIZE, ROWS, CONTEXT, PAGES, SCALING = 2, 2, 16, 6, 40, 24, 0.25


@pytest.fixture(autouse=True)
def small_pages(monkeypatch, request):
    """Pages of four tokens, so that a few tokens fill several; the compiled kernel has those that it has."""
    if not request.node.get_closest_marker("gpu"):
        monkeypatch.setattr(paged, "PAGE", 4)


class History:
    """A cache beside everything that was put into it: the keys and values of each layer, [kv heads, tokens, d], by prompt and row."""

    def __init__(self, heads: int = 4, device: str = "cpu", dtype: torch.dtype = torch.float32):
        self.draw = np.random.default_rng(0)
        self.noise = torch.Generator().manual_seed(0)
        self.heads, self.device, self.dtype = heads, device, dtype
        self.cache = PagedDecodeAttention(torch.device(device), ROWS, CONTEXT, PAGES)
        self.prompts: dict[int, list[torch.Tensor]] = {}
        self.rows: list[tuple[int, list[torch.Tensor]]] = []

    def random(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=self.noise).to(self.device, self.dtype)

    def add_prompts(self, lengths: list[int]) -> list[int]:
        kept = {layer: (self.random(len(lengths), KV_HEADS, max(lengths), SIZE),) * 2 for layer in range(LAYERS)}
        kept = {layer: (keys, self.random(*keys.shape)) for layer, (keys, _) in kept.items()}
        numbers = self.cache.add_prompts(kept, lengths)
        for at, (number, length) in enumerate(zip(numbers, lengths, strict=True)):
            self.prompts[number] = [torch.stack(kept[layer])[:, at, :, :length] for layer in range(LAYERS)]
        return numbers

    def add_rows(self, prompts: list[int]) -> None:
        self.cache.add_rows(prompts)
        empty = torch.zeros(2, KV_HEADS, 0, SIZE, device=self.device, dtype=self.dtype)
        self.rows += [(prompt, [empty] * LAYERS) for prompt in prompts]

    def keep_rows(self, rows: list[int]) -> None:
        self.cache.keep_rows(np.array(rows, dtype=np.int64))
        self.rows = [self.rows[row] for row in rows]
        gone = sorted(set(self.prompts) - {prompt for prompt, _ in self.rows})
        self.cache.drop_prompts(gone)
        for number in gone:
            del self.prompts[number]

    def step(self, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """What each row finds in each layer [layers, rows, heads, d + 1], and what it should; the last number is the row's position."""
        live = len(self.rows)
        positions = self.cache.step(size)
        outputs, expected = [], []
        for layer in range(LAYERS):
            q, k, v = (self.random(size, heads, SIZE) for heads in (self.heads, KV_HEADS, KV_HEADS))
            outputs.append(self.cache.attend(layer, q, k, v, SCALING)[:live])
            expected.append(torch.stack([self._row(row, layer, q[row], k[row], v[row]) for row in range(live)]))
        tokens = [self.prompts[prompt][0].shape[2] + response[0].shape[2] - 1 for prompt, response in self.rows]
        assert not positions[live:].any()
        return _with(torch.stack(outputs).float(), positions[:live]), _with(torch.stack(expected), torch.tensor(tokens))

    def _row(self, row: int, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        prompt, response = self.rows[row]
        response[layer] = torch.cat((response[layer], torch.stack((k, v))[:, :, None]), 2)
        keys, values = torch.cat((self.prompts[prompt][layer], response[layer]), 2).float().repeat_interleave(self.heads // KV_HEADS, 1)
        return ((keys @ q.float()[:, :, None] * SCALING).softmax(1) * values).sum(1)


def _with(states: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    return torch.cat((states, positions.to(states)[None, :, None, None].expand(*states.shape[:3], 1)), 3)


def play(history: History, steps: int = 24, tolerance: float = 1e-5) -> None:
    """Prompts come, rows come and go and change places, at random; after every step each row must have found what it should."""
    draw = history.draw
    for _ in range(steps):
        free = ROWS - len(history.rows)
        if free and (not history.rows or draw.random() < 0.5):
            new = history.add_prompts(draw.integers(1, 14, 2).tolist()) if draw.random() < 0.5 or not history.prompts else []
            history.add_rows((new + draw.choice(list(history.prompts), free).tolist())[:free])
            history.keep_rows(draw.permutation(len(history.rows)).tolist())
        outputs, expected = history.step(ROWS)
        torch.testing.assert_close(outputs, expected, rtol=tolerance, atol=tolerance)
        staying = [row for row, (_, response) in enumerate(history.rows) if response[0].shape[2] < 20 and draw.random() < 0.85]
        history.keep_rows(staying)


@pytest.mark.slow
@pytest.mark.parametrize("heads", [2, 14])
def test_every_row_attends_to_its_prompt_and_to_itself_only(heads):
    history = History(heads)
    with torch.inference_mode():
        play(history)
    assert history.cache.generation > 1


def test_pools_double_up_to_what_the_settings_allow_and_grow_by_an_eighth_beyond():
    cache = PagedDecodeAttention(torch.device("cpu"), ROWS, CONTEXT, PAGES)
    sizes = [len(cache._address.host)]
    while sizes[-1] < 40:
        cache._take(1, 1)
        sizes.append(len(cache._address.host))
    assert list(dict.fromkeys(sizes)) == [1, 2, 4, 8, 16, PAGES, 27, 30, 33, 37, 41]


def visible(cache: PagedDecodeAttention, size: int) -> torch.Tensor:
    """[size, pages]: in which pages a row sees anything, by the mask; without scores the output is the mean of the values seen."""
    pages = len(cache._address.host)
    values = torch.eye(pages)[None, :, None].expand(1, pages, paged.PAGE, pages)
    keys = torch.zeros(1, pages, paged.PAGE, pages)
    seen, pair = cache._seen.device[:, :size], (cache._count.device[:size, None, None], cache._table.device[:size, None, None])
    return attend_in_pages(torch.zeros(size, 1, 1, pages), keys, values, cache._address.device, *seen, *pair, 1.0)[:, 0, 0] > 0


@pytest.mark.slow
def test_the_table_lists_the_pages_in_which_something_is_seen_and_no_others():
    history = History()
    history.add_rows([prompt for prompt in history.add_prompts([3, 4, 9]) for _ in range(2)])
    for _ in range(6):
        history.step(ROWS)
    history.keep_rows([4, 1, 2])
    for size in (3, ROWS):
        history.step(size)
        for row, pages in enumerate(visible(history.cache, size)):
            listed = history.cache._table.device[row, : history.cache._count.device[row]].tolist()
            assert sorted(listed) == pages.nonzero()[:, 0].tolist()
            assert row < 3 or listed == [paged.PADDING]


def started() -> History:
    """Three rows of two prompts with six tokens each."""
    history = History()
    first, second = history.add_prompts([5, 7])
    history.add_rows([first, second, second])
    for _ in range(6):
        history.step(4)
    return history


def wrong(history: History) -> list[bool]:
    """Which rows do not find what they should."""
    outputs, expected = history.step(4)
    return ((outputs - expected).abs().amax((0, 2, 3)) > 1e-3).tolist()


def test_a_row_that_sees_anothers_page_is_noticed():
    history = started()
    assert wrong(history) == [False, False, False]
    table, count, address = (mirror.host for mirror in (history.cache._table, history.cache._count, history.cache._address))
    address[table[2, count[2] - 2]] = address[table[1, count[1] - 2]]
    history.cache._moved = True
    assert wrong(history) == [False, True, True]


@pytest.mark.slow
def test_only_a_new_number_of_rows_needs_a_new_compilation(compilations):
    attend = torch.compile(attend_in_pages, fullgraph=True, dynamic=False, backend=compilations)
    with torch.inference_mode():
        history = started()
        for size, prompts, expected in ((4, 0, 1), (4, 9, 1), (5, 9, 2), (4, 40, 2)):
            history.cache.add_prompts({layer: (torch.randn(1, KV_HEADS, 4, SIZE),) * 2 for layer in range(LAYERS)}, [4])
            history.add_prompts([4] * (prompts + 1))
            history.cache.step(size)
            cache, q = history.cache, torch.randn(size, KV_HEADS, 3, SIZE)
            pair = cache._count.device[:size, None, None], cache._table.device[:size, None, None]
            operands = (q, *cache._pools[0], cache._address.device, *cache._seen.device[:, :size], *pair, 0.5)
            torch.testing.assert_close(attend(*operands), attend_in_pages(*operands))
            assert compilations.count == expected
    assert history.cache.generation >= 4


@pytest.mark.gpu
@pytest.mark.parametrize("heads", [2, 4, 14])
@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-3), (torch.bfloat16, 0.05)])
def test_on_cuda_the_kernel_finds_the_same(heads, dtype, tolerance):
    with torch.inference_mode():
        play(History(heads, "cuda", dtype), tolerance=tolerance)
