"""Settings: frozen dataclasses. Defaults are the paper's values (its Table 1, or the readings of docs/decisions.md), except where a
docstring names the paper's.

TOML files and command-line flags change them (`config_file`), and the resolved settings are written into the run directory. Unknown
names and impossible combinations are errors before any work starts (`config_check`).
"""

from dataclasses import dataclass, field
from typing import Literal

from populora.core.types import TaskType, task_types

AZR_BANNED_IMPORTS = (
    "logging", "random", "multiprocessing", "pebble", "subprocess", "threading", "datetime", "time", "hashlib", "hmac", "bcrypt",
    "os.sys", "os.path", "sys.exit", "os.environ", "calendar",
)  # fmt: skip


EMBEDDED = {"tiny": "tiny_base", "tiny_sql": "tiny_sql_base"}
"""The bases that ship in the package, and their folders in ``engine/model``: one speaks Python, the other Python and SQL."""


@dataclass(frozen=True)
class BaseConfig:
    """The frozen base model."""

    path: str = "tiny"
    """``tiny`` (Python) or ``tiny_sql`` (Python and SQL), which ship in the package, or a folder / hub name that transformers can load."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of the base's weights. Adapters are trained in float32 in any case."""
    device: str = "cpu"
    """``cpu``, ``cuda`` or ``cuda:1``: where the base is."""
    kernels: Literal["auto", "torch"] = "auto"
    """What computes in float32 on a CPU. ``auto`` takes code in C for decoding and attention, if there is a C compiler; it keeps a second
    copy of the base's weights. `populora doctor` and ``run.json`` name the choice."""
    prompts: Literal["compact", "azr"] = "compact"
    """Prompt set: ``compact`` for the tiny base, ``azr`` for real models."""


@dataclass(frozen=True)
class LoraConfig:
    """Adapters (paper: rank 32, alpha 64, attention projections)."""

    rank: int = 32
    """Largest rank of an adapter."""
    alpha: float = 64.0
    """The adapter's product is scaled by alpha / rank."""
    targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj")
    """Linear modules that carry adapters, by the last part of their name."""
    ranks: tuple[int, ...] = ()
    """Ranks by member, teachers first, none above ``rank``; all have the same alpha / rank. Empty: all members have ``rank``."""


@dataclass(frozen=True)
class PopulationConfig:
    """Sizes of the two sub-populations, or the single agent of the baseline."""

    teachers: int = 4
    """Members that propose."""
    students: int = 4
    """Members that solve."""
    single_agent: bool = False
    """The AZR baseline: one adapter proposes and solves. The other settings of this section are ignored."""
    shared_adapters: bool = False
    """A control: each teacher shares one adapter with the student of its number, so there are as many of both. Such an agent has one
    rating, and meets itself only if no other student is left."""

    @property
    def agents(self) -> int:
        """Adapters that propose and solve; 0 in a population of teachers and students."""
        return 1 if self.single_agent else self.teachers if self.shared_adapters else 0

    @property
    def members(self) -> int:
        """Adapters of a run."""
        return self.agents or self.teachers + self.students


@dataclass(frozen=True)
class SelfplayConfig:
    """One step's sampling (paper: 24 prompts of each type, n = 8, T = 1)."""

    prompts_per_type: int = 24
    """Prompts of each task type that a teacher answers in a step."""
    samples_per_prompt: int = 8
    """Proposals for each of these prompts."""
    rho_samples: int = 8
    """Attempts per valid problem; their mean is rho (reading 3)."""
    previous_step_attempts: int = 0
    """The schedule of AZR's code, where this is 1: the single agent solves problems of the step before, this many times each, and trains on
    these attempts alone. With 0 a solver trains on the attempts that make rho, at problems of this step (the paper, reading 4)."""
    max_prompt_tokens: int = 6144
    """Longest prompt. A proposal is invalid if its problem, or a proposer's prompt that shows it, would be longer."""
    max_response_tokens: int = 8096
    """Responses are cut here."""
    train_problems: int = 0
    """Problems of each type that a student trains on in a step; 0: as many as ``prompts_per_type`` (the paper, reading 4)."""
    buffer_share: float = 0.0
    """Share of a student's training problems that come from the buffer: seeds and problems of earlier steps, by any teacher. 0 is the
    paper's. The log counts them as ``student/filled``."""
    buffer_size: int = 16384
    """Problems kept per task type; the oldest are dropped (reading 9)."""
    seeds: int = 256
    """Problems of each type in the buffer before the first step. A base without a file of them makes them once for all its runs."""
    overlap: Literal["reproducible", "eager", "off"] = "reproducible"
    """When students start on validated problems. ``reproducible``: as soon as that cannot change results, so that equal seeds give equal
    bytes (at once with the decoder in C, else at fixed calls of the sampler). ``eager``: at once. ``off``: once all proposals are in."""

    @property
    def student_batch(self) -> int:
        """Problems of each type that a student trains on."""
        return self.train_problems or self.prompts_per_type

    @property
    def buffer_problems(self) -> int:
        """Those of them that come from the buffer in any case."""
        return round(self.buffer_share * self.student_batch)


@dataclass(frozen=True)
class EngineConfig:
    """The sampler: the model that learns, or vLLM."""

    backend: Literal["inprocess", "vllm"] = "inprocess"
    """``inprocess`` reads the very tensors that train. ``vllm`` has a copy of the base and gets each adapter after every change."""
    rows: int = 512
    """Responses decoded at a time, at most."""
    cache_mb: int = 1024
    """Memory for keys and values, MiB. In-process it holds the responses being decoded, not their prompts. Fewer are decoded at a time if
    not all would fit at their maximum length. vLLM stores prompts in it too, and decodes what fits."""
    tensor_parallel: int = 1
    """vLLM: GPUs that share one engine's base."""
    release_cache: bool = False
    """vLLM on a GPU: free the cache's memory while adapters learn, if there is not enough for both."""


@dataclass(frozen=True)
class TasksConfig:
    """Rules of the tasks, after Absolute Zero (AZR). What is said of code_i, code_o and code_f holds for those kinds of any domain."""

    references: int = 0
    """Programs shown to a proposer of code_i and code_o (K); 0 takes the prompt set's number, 6 in ``azr`` and 1 in ``compact``."""
    code_f_inputs: int = 0
    """Inputs that a proposer of code_f gives; 0 takes the prompt set's number, 10 in ``azr`` and 6 in ``compact`` (Python)."""
    code_f_split: Literal["seeded", "fixed"] = "seeded"
    """The half of code_f's pairs that is hidden: drawn for each problem, or always the last ones (AZR)."""
    extraction: Literal["strict", "lenient"] = "strict"
    """How an answer is extracted: from its fence only, or else also from phrases such as "the input is" (AZR)."""
    equality: Literal["python", "strict"] = "python"
    """How two outputs are compared: by Python's ``==`` (AZR), or with equal types as well."""
    banned_imports: tuple[str, ...] = AZR_BANNED_IMPORTS
    """Modules that a Python program may not import. This is a rule of the task; the sandbox protects the machine."""


@dataclass(frozen=True)
class RewardConfig:
    """Eq. 1 and Eq. 2 of the paper."""

    correct: float = 1.0
    """Student's reward for a correct answer."""
    incorrect: float = -0.5
    """Student's reward for a wrong answer in the right format."""
    malformed: float = -1.0
    """Student's reward for a response that is not in the format."""
    invalid_proposal: float = -1.0
    """Teacher's reward for a proposal that the sandbox or the rules reject."""
    boundary: float = 0.0
    """Teacher reward where rho is 0 and where it is 1: 0 in the paper, -0.5 in AZR's code (reading 1)."""
    valid_proposal: Literal["difficulty", "learnability"] = "difficulty"
    """Teacher reward for any other rho: 1 - rho (paper), or 4 rho (1 - rho), which is highest where half of the answers are right.
    Ratings follow difficulty with both, so evolution then replaces teachers of easier problems, not those that earn least."""


@dataclass(frozen=True)
class LearnerConfig:
    """REINFORCE++-baseline and AdamW, per adapter (readings 11 to 14)."""

    learning_rate: float = 5e-5
    """AdamW's step size."""
    teacher_learning_rate: float = 0.0
    """That of teachers; 0: ``learning_rate``, as in the paper. With a lower one problems get harder more slowly."""
    warmup_steps: int = 0
    """An adapter's first updates, over which its step size rises in equal parts to ``learning_rate``; a child's begin at its birth. AZR has
    none, and the paper names none."""
    decay_steps: int = 0
    """Steps of the run over which the step size of all members falls in equal parts to 0. At least ``steps``; 0: it does not fall. The
    paper names no decay."""
    betas: tuple[float, float] = (0.9, 0.999)
    """AdamW's decay of the mean of gradients and of that of their squares."""
    epsilon: float = 1e-8
    """Small number that is added to the denominator of AdamW's step."""
    weight_decay: float = 0.0
    """AdamW's decoupled weight decay of both factors."""
    grad_clip: float = 1.0
    """Largest norm of an adapter's gradient; a larger one is scaled down."""
    clip_low: float = 0.2
    """PPO's clip: a worse action gains nothing more once its ratio of probabilities is below 1 - ``clip_low``."""
    clip_high: float = 0.28
    """A better action gains nothing more once its ratio is above 1 + ``clip_high`` (DAPO's clip-higher)."""
    whitening: Literal["pooled", "per_type", "member"] = "pooled"
    """Rollouts that share a mean and a deviation. ``pooled``: those of a member in one role; ``per_type``: those of one role and task type
    (AZR); ``member``: both roles of the single agent."""
    centring: Literal["prompt", "batch"] = "prompt"
    """Rewards are centred by prompt, and with "batch" their mean over the batch's tokens is subtracted as well (verl; the paper's presets).
    Without that, a prompt whose several samples earned the same trains nobody (reading 11)."""
    role_weights: Literal["tokens", "equal"] = "tokens"
    """Weights of the single agent's two roles in its loss: by their tokens (the paper's mean over the batch), or half each."""
    micro_batch_tokens: int = 16384
    """Tokens of one forward and backward. It changes memory and speed, not the update."""
    old_logprobs: Literal["sampler", "recomputed"] = "sampler"
    """Old log-probabilities of the ratio: the sampler's own, or the learner's. A batch is one optimiser step, so with the learner's the
    ratio is 1 and nothing is clipped; only the importance weight corrects for the sampler."""
    tis_cap: float = 2.0
    """Token-level truncated importance sampling: the largest weight (learner's probability over the sampler's) of a token. 0: tokens have
    no such weight (AZR)."""
    loss_aggregation: Literal["token_mean", "sequence_mean"] = "token_mean"
    """A member's policy loss and its whitening are means over tokens, in which long responses weigh more (paper), or over sequences."""
    base_kl: float = 0.0
    """Weight of a penalty on KL(member || base), in nats a token, that keeps members near the base. It costs a forward of the base. The
    paper has none."""
    max_kl: float = 0.1
    """Largest mean KL (nats a token) between sampler and learner of a member; beyond it the run stops."""
    min_ess: float = 0.5
    """Smallest effective sample size, as a share of a member's tokens, under the truncated importance weights learner / sampler. Below it
    the run stops, unless ``tis_cap`` is 0."""
    activation_checkpointing: Literal["none", "mlp", "layer"] = "none"
    """Activations that the backward recomputes instead of keeping: of the MLPs (most of the memory), or of whole layers."""


@dataclass(frozen=True)
class LeagueConfig:
    """TrueSkill and PFSP (readings 15 to 19)."""

    mu: float = 25.0
    """Rating of a member at the start."""
    sigma: float = 25.0 / 3.0
    """Its uncertainty."""
    beta: float = 25.0 / 6.0
    """TrueSkill's spread of a performance around the rating."""
    tau: float = 25.0 / 300.0
    """Uncertainty that is added before each game."""
    outcome: Literal["expected", "threshold"] = "expected"
    """The student wins if it solves more than TrueSkill expected of it, or more than ``threshold``."""
    threshold: float = 0.5
    """Solve rate above which the student wins, for ``outcome = "threshold"``."""
    unsolved: Literal["nobody", "teacher"] = "nobody"
    """Who wins where the student does not. ``teacher``: the teacher (the paper's presets). ``nobody``: the teacher if it would also win
    with its unsolved problems counted as solved; otherwise it is rated as the loser, and the student is not rated."""
    pfsp_floor: float = 0.01
    """Is added to the weight p (1 - p) of a pairing. With 1e6 all pairings are equally likely."""


@dataclass(frozen=True)
class EvolutionConfig:
    """Replacement of the weakest (readings 20 to 26)."""

    every: int = 10
    """Steps between two evolutions; 0 turns evolution off."""
    cull_fraction: float = 0.25
    """Share of each role that is replaced (gamma of the paper)."""
    lcb_k: float = 1.0
    """Members are ranked by mu - k sigma."""
    teacher_fitness: Literal["rating", "reward"] = "rating"
    """What ranks teachers, for culling and as parents: that bound of their rating (paper), or their mean reward since the last evolution.
    Invalid proposals count in the second alone. Students are always ranked by rating."""
    child_sigma: float = 25.0 / 12.0
    """Smallest uncertainty of a newborn's rating."""
    cull: Literal["weakest", "random"] = "weakest"
    """Who is replaced: the lowest by rating (paper), or members drawn by chance, as a control. Parents are from the top half in both."""
    broken_valid_rate: float = 0.1
    """A teacher whose share of valid proposals of one type since the last evolution is below this is broken: it is replaced first, whatever
    its rating, and chosen as a parent last. A newborn is spared all the same. 0 turns this off (paper)."""
    protect_newborns: bool = True
    """Spare a child at the first evolution after its birth. Nobody stronger is replaced instead, so fewer than ``cull_fraction`` are. The
    paper spares nobody."""
    operators: tuple[str, ...] = ("m1", "m2", "m3", "m4", "x1", "x2", "x3", "x4")
    """Operators that children are bred by: one is drawn of those that have enough parents."""
    min_basis_cosine: float = 0.5
    """x1 and x4 mix the parents' factors entry by entry, which makes sense only if both have the same basis. If the cosine between their A
    is below this, another operator of the pool is drawn. -1 allows any parents (paper)."""
    refactor: Literal["revive", "balanced"] = "revive"
    """How operators split a child's singular values: ``balanced`` (paper) leaves masked components dead forever."""
    keep_parents: bool = True
    """Keep the parents of children, one fp32 adapter each, so that `populora replay` can breed the children again."""


@dataclass(frozen=True)
class SandboxConfig:
    """The verifier's limits; seconds and MiB."""

    workers: int = 2
    """Programs that run at the same time."""
    cpu_seconds: float = 2.0
    """CPU time of one check of a program: for each of its inputs, its top level once and ``f`` twice. A ``code_f`` proposal with ten inputs
    has twenty calls."""
    wall_seconds: float = 10.0
    """Time that a program may wait. The limit moves on while it computes."""
    memory_mb: int = 1024
    """Address space of a program, MiB."""
    max_output_chars: int = 400
    """A program whose output is longer is rejected, not cut."""
    allow_weak: bool = False
    """Run also where the machine gives less isolation than system-call filters with Landlock or namespaces. Programs may then be able to do
    what your user can."""


@dataclass(frozen=True)
class EvaluationConfig:
    """Held-out evaluation of every solver inside training."""

    every: int = 0
    """Evaluate after the first step, after every step that this divides, and after the last one. 0 turns evaluation off."""
    problems_per_type: int = 32
    """Problems of each type, from the base's held-out suite."""


@dataclass(frozen=True)
class ClusterConfig:
    """The processes of a run, as Ray actors. Without ``learners`` the run is one process, and nothing else here may be set."""

    learners: int = 0
    """Number of learners, each with the whole base and some of the adapters. On GPUs they share those of the engines: ``learners`` x
    ``shards`` is ``engines`` x ``engine.tensor_parallel``."""
    shards: int = 1
    """GPUs that share one learner's base (FSDP2), for bases larger than one."""
    engines: int = 1
    """Number of engines that sample, each with ``engine.tensor_parallel`` GPUs."""
    adapter_copies: int = 0
    """Engines that hold each adapter; 0: all. Fewer save memory with hundreds of adapters, and load engines less evenly if the lengths of
    their answers differ much."""
    verifiers: int = 1
    """Sandboxes with ``sandbox.workers`` workers each, spread over the machines."""
    address: str = ""
    """A Ray cluster to join: ``host:port``, or ``auto`` for that of ``RAY_ADDRESS`` or of this machine. Empty: start Ray here."""
    help_cost: float = 1000.0
    """Cost, in tokens, of one learner helping another with an adapter on the same machine; twice that on another machine."""
    wait_seconds: float = 600.0
    """Seconds to wait for a place for an actor, at the start and after a machine was lost."""


@dataclass(frozen=True)
class Config:
    """All settings of a run."""

    domains: tuple[str, ...] = ("python",)
    """Languages of the programs: ``python``, ``sql``, or an installed package's (`populora doctor` lists them). Members learn the tasks of
    all of them."""
    seed: int = 0
    """Seed of all random streams of the run."""
    steps: int = 200
    """Steps of the run."""
    threads: int = 0
    """CPU threads for torch. 0 leaves torch's own choice in one process, and is `OMP_NUM_THREADS`, or 1, in each process of a cluster."""
    checkpoint_every: int = 1
    """Steps between two checkpoints. A kill loses at most that many steps."""
    keep_checkpoints: int = 2
    """Number of the newest checkpoints that a run keeps."""
    keep_checkpoints_every: int = 0
    """The checkpoints of every such step are kept, too, to be evaluated or exported (``--step``); 0: none."""
    track: tuple[Literal["tensorboard", "trackio", "wandb"], ...] = ()
    """Trackers of the metrics, in addition to the files, which are always written. Each is an extra of its name and writes into the run
    directory. W&B goes online unless ``WANDB_MODE`` says otherwise."""
    base: BaseConfig = field(default_factory=BaseConfig)
    lora: LoraConfig = field(default_factory=LoraConfig)
    population: PopulationConfig = field(default_factory=PopulationConfig)
    selfplay: SelfplayConfig = field(default_factory=SelfplayConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    tasks: TasksConfig = field(default_factory=TasksConfig)
    rewards: RewardConfig = field(default_factory=RewardConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    league: LeagueConfig = field(default_factory=LeagueConfig)
    evolution: EvolutionConfig = field(default_factory=EvolutionConfig)
    sandbox: SandboxConfig = field(default_factory=SandboxConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)

    @property
    def task_types(self) -> tuple[TaskType, ...]:
        """The task types of all domains, three of each."""
        return task_types(self.domains)
