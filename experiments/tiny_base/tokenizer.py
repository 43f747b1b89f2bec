"""The tiny base's tokenizer: 256 bytes plus a fixed list of whole strings.

Every multi-character token is an *added token*, which Hugging Face tokenizers match in the raw text before anything
else (leftmost, longest); the rest falls back to single bytes. The BPE model has no merges. That makes the ids
independent of the class that loads the files: ``AutoTokenizer`` turns ``model_type: qwen2`` into ``Qwen2Tokenizer``
with its own pre-tokenizer whatever ``tokenizer.json`` says, and with this layout that changes nothing.
"""

from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

PAD, EOS = "<pad>", "<eos>"
SPECIAL = (PAD, EOS)
TAGS = ("<think>", "</think>", "<answer>", "</answer>", "<propose>", "<solve>", "<code_i>", "<code_o>", "<code_f>")
FENCES = ("```python\n", "```input\n", "```output\n", "```message\n", "\n```", "\n```\n", "\n```</answer>")
LAYOUT = ("\n", "\n    ", "\n        ", "\n            ", "\n                ", "  # ", ", ", ": ")
STATEMENTS = (
    "def f(", "def g(", "):", "return ", "if ", "elif ", "else:", "for ", "while ", " in ", " and ", " or ", "not ",
    " = ", " += ", " -= ", " *= ", " //= ", " + ", " - ", " * ", " // ", " % ", " == ", " != ", " > ", " < ", " if ", " for ",
    " % 2 == ", " % 3 == ", "import ", "class ", "lambda ",
)  # fmt: skip
CALLS = (
    "len(", "sum(", "max(", "min(", "abs(", "sorted(", "range(", "enumerate(", "str(", "list(", "tuple(", "g(", "f(",
    ".append(", ".count(", ".get(", ".upper()", ".replace(", ".values()", ".items()", "''.join(", "[::-1]", "[1:]", "[:-1]",
    "[:", "True", "False", "None", "end", "{}", "[]", "''",
)  # fmt: skip
WORDS = (
    "plus", "minus", "times", "div", "mod", "count", "length", "total", "biggest", "smallest", "gap", "reverse", "sort", "cut",
    "append", "upper", "swap", "join", "filter", "map", "repeat", "each", "branch", "otherwise", "until", "give", "helper",
    "set", "lookup", "index", "keep", "pair", "unequal", "equal", "more", "less", "contains", "text", "both", "either", "put",
    "walk", "slice", "; ", " then ",
)  # fmt: skip
NUMBERS = (*(str(number) for number in range(10, 31)), *(str(number) for number in range(-30, 0)))
"""Integers of the embedded domain are one token each: arithmetic becomes a table that one million parameters can learn."""
WHOLE = (*TAGS, *FENCES, *LAYOUT, *STATEMENTS, *CALLS, *WORDS, *NUMBERS)
SQL = (
    "<sql_i>", "<sql_o>", "<sql_f>", "```sql\n",
    "SELECT ", " SELECT ", "DISTINCT ", " FROM t", " FROM u", " FROM v", "\nFROM t", "\nFROM u", "\nFROM v", " WHERE ", " GROUP BY ",
    " HAVING ", " ORDER BY ", "\nORDER BY ", " LIMIT ", " DESC", " JOIN u ON ", " ON ", " UNION ", " UNION ALL ", "WITH v AS (",
    " AND ", " OR ", " IS NULL", " IS NOT NULL", " BETWEEN ", " IN (", "CASE WHEN ", " THEN ", " ELSE ", " END", " AS ",
    " <> ", " || ", "ABS(", "LENGTH(", "UPPER(", "COUNT(*)", "COUNT(", "SUM(", "MIN(", "MAX(", "NULL", "no rows", " -> ", ",'",
    *(f"{name}=" for name in "abcsxyrpq"), *(f",{name}=" for name in "abcsyrpq"), "\nu(",
)  # fmt: skip
"""What the statements, databases and traces of SQL are made of. None of it occurs in a document of Python."""
ROUND_TO = 64  # the embedding has a multiple of this many rows


def build_tokenizer(languages: tuple[str, ...] = ("python",)) -> PreTrainedTokenizerFast:
    """The tokenizer, made from the lists above; ids are stable as long as the lists are. Those of SQL come after all others."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate((*SPECIAL, *alphabet))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token=None))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)  # type: ignore[assignment]
    tokenizer.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in dict.fromkeys(WHOLE + SQL * ("sql" in languages))])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=EOS, pad_token=PAD, unk_token=None, clean_up_tokenization_spaces=False
    )


def vocabulary_size(tokenizer: PreTrainedTokenizerFast) -> int:
    """Rows of the embedding: the number of ids, rounded up."""
    return -(-len(tokenizer) // ROUND_TO) * ROUND_TO


def save_tokenizer(folder: Path, languages: tuple[str, ...] = ("python",)) -> PreTrainedTokenizerFast:
    """Write ``tokenizer.json`` and ``tokenizer_config.json`` into the folder."""
    tokenizer = build_tokenizer(languages)
    tokenizer.save_pretrained(folder)
    return tokenizer
