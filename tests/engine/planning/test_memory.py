"""Memory of a plan: figures made by hand, the learner's own graph counted, and what cannot fit refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from populora.core.config import BaseConfig, ClusterConfig, Config, EngineConfig, SelfplayConfig
from populora.core.errors import ConfigError
from populora.engine.planning.memory import ACTIVATIONS, CACHE, CHUNK, head_bytes, kept_bytes, rows_at_a_time
from populora.engine.planning.plan import Plan
from populora.engine.planning.shapes import Shapes, qwen2

MIB = 2**20


def part(plan: Plan, name: str, owner: str = "") -> float:
    return sum(one.bytes for one in plan.memory.parts if one.name == name and one.owner.startswith(owner))


def test_figures_of_the_paper_s_base(seven: Shapes, paper: Callable[..., Config], planned: Callable[..., Plan]):
    single = planned(paper(), "h200-141gb", 1)  # one learner has all 8 adapters
    assert part(single, "adapters and their moments, fp32") / 2**30 == pytest.approx(1.8, abs=0.05)
    assert part(single, "gradients of the adapters, fp32") / 2**30 == pytest.approx(0.60, abs=0.005)
    assert part(single, "base", "engine") == part(single, "base", "learner") == pytest.approx(15.2e9, rel=0.01)
    assert 28 * kept_bytes(seven, 128, 2, "layer") == 196 * 1024
    assert 28 * kept_bytes(seven, 128, 2, "none") / MIB == pytest.approx(4.6, rel=0.05)
    assert 4 * 8096 * seven.vocabulary / 2**30 == pytest.approx(4.6, abs=0.02)  # what the chunks avoid
    assert head_bytes(seven, 8096, 2) / 2**30 < 1.4


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("checkpointing", ["none", "mlp", "layer"])
def test_kept_activations_are_those_of_the_learner_s_own_graph(dtype: str, checkpointing: str):
    shapes = {layers: qwen2("small", 64, 256, layers, 4, 2, 128, tied=True, context=128) for layers in (2, 3)}
    kept = {layers: _saved_bytes(shape, dtype, checkpointing) for layers, shape in shapes.items()}
    expected = kept_bytes(shapes[3], 4 * 8, 4 if dtype == "float32" else 2, checkpointing)
    assert kept[3] - kept[2] == pytest.approx(expected)


def _saved_bytes(shapes: Shapes, dtype: str, checkpointing: str) -> float:
    """Bytes a token that autograd keeps beyond weights, each storage once."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from populora.engine.model.model import AdaptedModel
    from populora.engine.model.packing import Group, pack

    config = Qwen2Config(
        vocab_size=shapes.vocabulary, hidden_size=shapes.hidden, intermediate_size=shapes.inner, num_hidden_layers=shapes.layers,
        num_attention_heads=shapes.heads, num_key_value_heads=shapes.kv_heads, max_position_embeddings=shapes.context,
    )  # fmt: skip
    model = Qwen2ForCausalLM(config).to(getattr(torch, dtype))
    adapted = AdaptedModel(model, ("q_proj", "k_proj", "v_proj", "o_proj"), 1, 8, 16.0, checkpointing)  # type: ignore[arg-type]
    families = [tensor for family in adapted.bank.families for tensor in (family.a, *family.b)]
    weights = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *families)}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage
        return tensor

    packed = pack([Group(0, [1], (tuple(range(64)),))], torch.device("cpu"))
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        hidden = adapted.forward(packed.ids, packed.positions, packed.route, packed.plan)
    return sum(storage.nbytes() for storage in kept.values()) / len(hidden)


def test_the_chunk_of_logits_is_the_head_s_own():
    from populora.engine.model.head import CHUNK_ELEMENTS

    assert CHUNK_ELEMENTS["cuda"] == CHUNK


def test_rows_at_a_time_are_about_the_sampler_s_own():
    from populora.engine.model.loading import load_base
    from populora.engine.model.model import AdaptedModel
    from populora.engine.model.shapes import base_shapes
    from populora.engine.sampling.inprocess import InProcessSampler

    config = Config(selfplay=SelfplayConfig(max_response_tokens=224), engine=EngineConfig(cache_mb=100))
    model, tokenizer = load_base(BaseConfig())
    sampler = InProcessSampler(AdaptedModel(model, ("q_proj",), 1, 4, 8.0), tokenizer, 0, 512, 100)
    assert rows_at_a_time(config, base_shapes(BaseConfig())) == sampler.rows_at_a_time(224) == 114  # whole pages of 16


def test_the_in_process_engine_shares_the_learner_s_base(paper: Callable[..., Config], planned: Callable[..., Plan]):
    plan = planned(paper(backend="inprocess", cache_mb=8192), gpus=1)
    assert [one.owner for one in plan.memory.parts if one.name == "base"] == ["engine and learner"]
    assert part(plan, CACHE) < 8192 * MIB + 8 * 6144 * 56 * 1024


def test_a_released_cache_shares_its_room_with_activations(paper: Callable[..., Config], planned: Callable[..., Plan]):
    held, released = (planned(paper(4, "mlp", release_cache=given)) for given in (False, True))
    learning = part(released, ACTIVATIONS) + part(released, "logits and their gradients")
    assert held.memory.total - released.memory.total == min(part(released, CACHE), learning)
    assert not held.fits


def test_checkpointing_decides_what_fits(paper: Callable[..., Config], planned: Callable[..., Plan]):
    assert planned(paper(4, "layer")).fits and not planned(paper(4, "none")).fits


def test_an_engine_on_several_gpus_spreads_its_cache(paper: Callable[..., Config], planned: Callable[..., Plan]):
    one, four = planned(paper()), planned(paper(tensor_parallel=4))
    assert four.memory.cache == 4 * one.memory.cache and part(four, CACHE) == part(one, CACHE)
    planned(paper(cache_mb=200, tensor_parallel=4))
    with pytest.raises(ConfigError, match=r"cache_mb is 200: a prompt and a response of full length, 6144 \+ 8096 tokens, need 779"):
        planned(paper(cache_mb=200))


def test_a_learner_of_a_cluster_has_room_for_what_it_owns_and_a_guest(paper: Callable[..., Config], planned: Callable[..., Plan]):
    single, three = 20_185_088, replace(paper(), cluster=ClusterConfig(learners=3, engines=3))
    plan = planned(three)  # 8 members: 3, 3 and 2 of them
    assert part(plan, "gradients of the adapters, fp32") == (3 + 1) * 4 * single
    assert part(plan, "adapters and their moments, fp32") == (3 + 1) * 12 * single
    assert part(plan, "adapters as the base computes") == (3 + 1) * 2 * single
    assert part(planned(paper(), gpus=1), "gradients of the adapters, fp32") == 8 * 4 * single  # one process: all, and no guest


def test_the_gpus_of_a_learner_share_layers_only(seven: Shapes, paper: Callable[..., Config], planned: Callable[..., Plan]):
    plan = planned(replace(paper(), cluster=ClusterConfig(learners=2, shards=4, engines=8)))
    whole = seven.parameters - seven.linear
    assert part(plan, "base", "learner") == pytest.approx(2 * (whole + seven.linear * (1 / 4 + 2 / 28)))
    assert part(plan, "base", "engine") == 2 * seven.parameters
    assert part(plan, "gradients of the adapters, fp32") == (4 + 1) * 4 * 20_185_088  # adapters are whole


def test_an_in_process_engine_of_a_cluster_has_its_own_base_and_bank(paper: Callable[..., Config], planned: Callable[..., Plan]):
    plan = planned(paper(backend="inprocess", cache_mb=8192))
    assert part(plan, "base", "engine") == part(plan, "base", "learner") > 15e9
    assert part(plan, "adapters and their moments, fp32", "engine") == 8 * 12 * 20_185_088


def test_vllm_holds_an_adapter_more_than_there_are_members(paper: Callable[..., Config], planned: Callable[..., Plan]):
    assert part(planned(paper()), "adapters") == 9 * 2 * 20_185_088


def test_a_cache_too_small_for_one_response_is_refused(paper: Callable[..., Config], planned: Callable[..., Plan]):
    with pytest.raises(ConfigError, match=r"cache_mb is 100: one response of 8096 tokens needs 443"):
        planned(paper(backend="inprocess", cache_mb=100), gpus=1)


def test_context_bounds_prompt_and_response(paper: Callable[..., Config], planned: Callable[..., Plan]):
    config = paper()
    long = replace(config.selfplay, max_response_tokens=30_000)
    with pytest.raises(ConfigError, match=r"6144 \+ selfplay.max_response_tokens 30000 exceed the base's context of 32768"):
        planned(replace(config, selfplay=long))
