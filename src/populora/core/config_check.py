"""Check that settings are possible, before any work starts."""

import math
from operator import attrgetter

from populora.core.config import ClusterConfig, Config, LeagueConfig
from populora.core.config_file import field_names, from_mapping, to_mapping
from populora.core.errors import ConfigError


def check(config: Config) -> None:
    """Raise `ConfigError` for the first value of a wrong type, and for the first impossible value or combination."""
    from_mapping(to_mapping(config))
    for name in field_names():
        value = attrgetter(name)(config)
        if any(isinstance(part, float) and not math.isfinite(part) for part in (value if isinstance(value, tuple) else (value,))):
            raise ConfigError(f"setting '{name}': expected a finite number, got {value}")
    for holds, message in _conditions(config):
        if not holds:
            raise ConfigError(message)


POSITIVE = (
    "steps", "checkpoint_every", "keep_checkpoints", "lora.rank", "lora.alpha", "selfplay.prompts_per_type",
    "selfplay.samples_per_prompt", "selfplay.rho_samples", "selfplay.max_prompt_tokens", "selfplay.max_response_tokens",
    "selfplay.seeds", "engine.rows", "engine.cache_mb", "engine.tensor_parallel", "learner.learning_rate", "learner.epsilon",
    "learner.grad_clip", "learner.micro_batch_tokens", "league.sigma",
    "league.beta", "evolution.child_sigma", "sandbox.workers", "sandbox.cpu_seconds", "sandbox.wall_seconds", "sandbox.memory_mb",
    "sandbox.max_output_chars", "cluster.shards", "cluster.engines", "cluster.verifiers", "cluster.wait_seconds",
    "evaluation.problems_per_type",
)  # fmt: skip
NOT_NEGATIVE = (
    "threads", "keep_checkpoints_every", "learner.weight_decay", "learner.clip_low", "learner.clip_high", "learner.max_kl",
    "learner.min_ess", "learner.base_kl", "learner.warmup_steps", "learner.decay_steps", "learner.teacher_learning_rate",
    "league.tau", "league.pfsp_floor", "evolution.every", "evolution.lcb_k", "evaluation.every", "tasks.references", "tasks.code_f_inputs",
    "cluster.learners", "cluster.adapter_copies", "cluster.help_cost", "selfplay.previous_step_attempts", "selfplay.train_problems",
)  # fmt: skip


def _conditions(c: Config) -> list[tuple[bool, str]]:
    p, s, e, n = c.population, c.selfplay, c.evolution, c.learner
    conditions = [(attrgetter(name)(c) > 0, f"setting '{name}': expected more than 0, got {attrgetter(name)(c)}") for name in POSITIVE]
    conditions += [(attrgetter(name)(c) >= 0, f"setting '{name}': expected 0 or more, got {attrgetter(name)(c)}") for name in NOT_NEGATIVE]
    longest = s.max_prompt_tokens + s.max_response_tokens
    conditions += [
        (abs(c.seed) < 2**63, f"seed is {c.seed}: expected a number of 64 bits"),
        (len(set(c.track)) == len(c.track), f"track is {c.track}: expected each of them once"),
        (c.keep_checkpoints_every % max(c.checkpoint_every, 1) == 0,
         f"keep_checkpoints_every is {c.keep_checkpoints_every}: expected 0 or a multiple of checkpoint_every, {c.checkpoint_every}"),
        (p.single_agent or min(p.teachers, p.students) >= 1,
         f"population: expected at least one teacher and one student, or single_agent = true, got {p.teachers} and {p.students}"),
        (not p.shared_adapters or p.single_agent or p.teachers == p.students,
         f"population.shared_adapters takes as many teachers as students, got {p.teachers} and {p.students}"),
        (0 <= e.cull_fraction < 1, f"evolution.cull_fraction is {e.cull_fraction}: expected 0 <= cull_fraction < 1"),
        (all(0 <= beta < 1 for beta in n.betas), f"learner.betas is {n.betas}: expected two values from 0 to below 1"),
        (n.micro_batch_tokens >= longest,
         f"learner.micro_batch_tokens {n.micro_batch_tokens} is smaller than one row of selfplay's limits, {longest}"),
        (0 <= c.league.threshold <= 1, f"league.threshold is {c.league.threshold}: expected a solve rate from 0 to 1"),
        (c.league.outcome == "threshold" or c.league.threshold == LeagueConfig.threshold,
         f'league.threshold is {c.league.threshold}, but league.outcome is "{c.league.outcome}": it is for league.outcome = "threshold"'),
        (0 <= e.broken_valid_rate <= 1, f"evolution.broken_valid_rate is {e.broken_valid_rate}: expected a share from 0 to 1"),
        (-1 <= e.min_basis_cosine <= 1, f"evolution.min_basis_cosine is {e.min_basis_cosine}: expected a cosine from -1 to 1"),
        (e.every == 0 or bool(e.operators), "evolution.operators is empty: name at least one operator or set evolution.every = 0"),
        (not s.previous_step_attempts or p.single_agent,
         f"selfplay.previous_step_attempts is {s.previous_step_attempts}: expected 0, or the single agent (population.single_agent)"),
        (0 <= s.buffer_share <= 1 and (s.buffer_share == 0 or s.buffer_problems > 0),
         f"selfplay.buffer_share is {s.buffer_share}: expected 0, or a share up to 1 that is at least one of {s.student_batch} problems"),
        (not (s.buffer_share and s.previous_step_attempts),
         f"selfplay.buffer_share is {s.buffer_share}: expected 0, because selfplay.previous_step_attempts takes all from the buffer"),
        (s.buffer_size >= s.seeds, f"selfplay.buffer_size {s.buffer_size} is smaller than selfplay.seeds {s.seeds}"),
        (not c.lora.ranks or len(c.lora.ranks) == p.members, f"lora.ranks has {len(c.lora.ranks)} values for {p.members} members"),
        (all(1 <= rank <= c.lora.rank for rank in c.lora.ranks), f"lora.ranks is {c.lora.ranks}: expected 1 to lora.rank, {c.lora.rank}"),
        (not e.every or p.single_agent or all(len(set(ranks)) < 2 for ranks in (c.lora.ranks[: p.teachers], c.lora.ranks[p.teachers :])),
         f"lora.ranks is {c.lora.ranks}: evolution breeds within a role, whose members need one rank; set evolution.every = 0"),
        (bool(c.lora.targets), "lora.targets is empty: name at least one linear module, such as 'q_proj'"),
        (len(set(c.domains)) == len(c.domains) > 0, f"domains is {c.domains}: expected at least one, each once"),
        (c.tasks.code_f_inputs != 1, "tasks.code_f_inputs is 1: expected at least 2 (half of them are hidden), or 0 for the prompt set's"),
        (all(word.isascii() and word.strip() for word in c.tasks.banned_imports),
         f"tasks.banned_imports is {c.tasks.banned_imports}: expected names of modules"),
        (c.engine.backend == "vllm" or c.engine.tensor_parallel == 1,
         f"engine.tensor_parallel is {c.engine.tensor_parallel}: only engine.backend = 'vllm' shares a base among GPUs"),
        (not c.engine.release_cache or (c.engine.backend == "vllm" and c.base.device != "cpu"),
         "engine.release_cache is set: only engine.backend = 'vllm' on a GPU (base.device) can give its cache back"),
        *_cluster_conditions(c),
        (n.tis_cap == 0 or n.tis_cap >= 1, f"learner.tis_cap is {n.tis_cap}: expected 1 or more, or 0 for no weight"),
        (n.min_ess <= 1, f"learner.min_ess is {n.min_ess}: expected a share from 0 to 1"),
        (n.teacher_learning_rate == 0 or not p.agents,
         f"learner.teacher_learning_rate is {n.teacher_learning_rate}: expected 0, because an agent with both roles is one adapter"),
        (e.teacher_fitness == "rating" or not p.agents,
         f'evolution.teacher_fitness is "{e.teacher_fitness}": expected "rating", because an agent with both roles is ranked by it'),
        (n.decay_steps == 0 or n.decay_steps >= c.steps,
         f"learner.decay_steps is {n.decay_steps}: expected 0 or at least steps, {c.steps}; for more steps start a new run"),
        (n.clip_low < 1, f"learner.clip_low is {n.clip_low}: expected less than 1"),
    ]  # fmt: skip
    return conditions


def engines_without_work(c: Config) -> bool:
    """Whether some engines hold no teacher or no student (`holders_of`: a role has slots in a row, and copies are at equal distances)."""
    copies, engines = c.cluster.adapter_copies, c.cluster.engines
    role = c.population.agents or min(c.population.teachers, c.population.students)
    return 0 < copies <= engines and role < engines - (copies - 1) * (engines // copies)


def _cluster_conditions(c: Config) -> list[tuple[bool, str]]:
    k, device = c.cluster, c.base.device
    if not k.learners:
        others = [f"cluster.{name}" for name, value in vars(k).items() if value != getattr(ClusterConfig(), name)]
        names = f"{' and '.join(others)} {'are' if len(others) > 1 else 'is'} set"
        return [(not others, f"cluster.learners is 0, one process, but {names}: set cluster.learners to 1 or more")]
    sampling, learning, kind = k.engines * c.engine.tensor_parallel, k.learners * k.shards, device.split(":", maxsplit=1)[0]
    reproducible = (
        'selfplay.overlap is "reproducible", which needs a single process: a new run with cluster.learners takes "off" (equal seeds give '
        'bit-identical results) or "eager" (faster). One that began with "reproducible" resumes without cluster.learners'
    )
    unequal = (
        f"cluster.engines x engine.tensor_parallel is {sampling} GPUs, cluster.learners x cluster.shards is {learning}: expected the same"
    )
    too_few = (
        f"cluster.adapter_copies is {k.adapter_copies}: some of {k.engines} engines would hold no teacher, or no student, and wait while "
        "these sample; raise it, or set 0 (each engine holds all)"
    )
    return [
        (
            k.adapter_copies <= k.engines,
            f"cluster.adapter_copies is {k.adapter_copies}: expected at most cluster.engines, {k.engines}, or 0",
        ),
        (not engines_without_work(c), too_few),
        (c.selfplay.overlap != "reproducible", reproducible),
        (device == kind, f"base.device is '{device}': expected '{kind}', Ray chooses a cluster's GPUs"),
        (device == "cpu" or sampling == learning, unequal),
    ]
