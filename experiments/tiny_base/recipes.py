"""The recipes of the bases that can be built. ``both`` starts from the base that ``python`` gives, which ships as ``tiny``."""

from experiments.tiny_base.data import PretrainConfig, Stage

LANGUAGES = ("python", "sql")
BOTH_FIRST = Stage(3e-3, (("both_short", 5), ("both_reasoning", 18), ("both_settled", 13)), decay_shards=18)
BOTH_SECOND = Stage(3e-3, (("both_settled", 24),), decay_shards=20)
BOTH_THIRD = Stage(3e-3, (("both_proposing", 20),), decay_shards=20)
BOTH_FOURTH = Stage(2e-3, (("both_long", 16),), decay_shards=16)
RECIPES = {
    "python": PretrainConfig(),
    "both": PretrainConfig(stages=(BOTH_FIRST, BOTH_SECOND, BOTH_THIRD, BOTH_FOURTH), languages=LANGUAGES, start="tiny"),
}
