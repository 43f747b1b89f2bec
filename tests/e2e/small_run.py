"""The small run of these tests, and how two runs are compared."""

from pathlib import Path

from populora.core.config import Config, EvaluationConfig, EvolutionConfig, LearnerConfig, LoraConfig, PopulationConfig, SelfplayConfig
from populora.core.files import digest

SMALL = Config(
    seed=5, steps=4, keep_checkpoints=2,
    lora=LoraConfig(rank=4, alpha=8.0),
    population=PopulationConfig(teachers=2, students=2),
    selfplay=SelfplayConfig(
        prompts_per_type=1, samples_per_prompt=3, rho_samples=3, max_prompt_tokens=256, max_response_tokens=96, buffer_size=64, seeds=16
    ),
    learner=LearnerConfig(learning_rate=1e-3),
    evolution=EvolutionConfig(every=2),
    evaluation=EvaluationConfig(every=2, problems_per_type=2),
)  # fmt: skip


class Silent:
    def phase(self, name):
        pass

    def remark(self, text):
        pass

    def step(self, record, metrics):
        pass

    def close(self, summary):
        pass


def contents(folder: Path) -> dict[str, str]:
    """SHA-256 of all that must be equal for equal seeds: everything but times and the lock.

    Where bytes differ, pytest takes hours to print how.
    """
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in ("timings.jsonl", "lock"))
    links = {str(path.relative_to(folder)): str(path.readlink()) for path in folder.rglob("*") if path.is_symlink()}
    return links | {str(path.relative_to(folder)): digest(path.read_bytes()) for path in files}
