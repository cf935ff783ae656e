"""The tokenizer that the metadata of a GGUF file describes, made of the parts of the package tokenizers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hpckit.errors import InputError, SetupError
from hpckit.io.tokenizers import Bytes, Pieces, Tokenizer

CONTROL, USER = 3, 4  # types of tokens: marks that no text has, and words that are never split
SPACE = "\u2581"
# Where texts are cut before pieces are joined, by the name of the pre-tokenizer (the models' own tokenizer.json).
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|NUMBER| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
PARTS = ("*", "+"), ("+", "*")
CASES = "|".join(rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}{first}{LOWER}{then}SHORT" for first, then in PARTS)
SHORT = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
CASED = rf"{CASES}|NUMBER| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CODE = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}")
# Letters that have cases, as of the alphabets that a DeepSeek of 2023 knew: without the cased letters of these ranges.
UNKNOWN = (
    r"\x{560}-\x{588}\x{10c7}-\x{10ff}\x{1c80}-\x{1c8f}\x{2d00}-\x{2d2d}\x{a790}-\x{ab68}"
    r"\x{10570}-\x{105bc}\x{10d50}-\x{10d85}\x{16e40}-\x{16eff}\x{1d400}-\x{1df2f}"
)
DEEPSEEK = (
    r"[\r\n]",
    rf"\s?[\p{{Lu}}\p{{Ll}}\p{{Lt}}&&[^{UNKNOWN}]]+",
    r"\s?[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002}]+",
    r"\s+$",
    "[一-龥ࠀ-一가-퟿]+",
    r"\p{N}",
)
DEEPSEEK_3 = (
    r"\p{N}{1,3}",
    r"[一-龥\x{3040}-\x{30ff}]+",
    r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)
WAYS = {
    (GPT2,): ("default", "gpt-2", "mpt", "olmo"),
    (r"\p{N}", GPT2): ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"),
    (WORDS.replace("NUMBER", r"\p{N}{1,3}"),): (
        "llama-bpe",
        "llama3",
        "llama-v3",
        "falcon3",
        "pixtral",
        "dbrx",
        "smaug-bpe",
    ),
    (WORDS.replace("NUMBER", r"\p{N}"),): ("qwen2", "deepseek-r1-qwen", "megrez", "stablelm2"),
    (CASED.replace("SHORT", "").replace("NUMBER", r"\p{N}"),): ("tekken",),
    (CASED.replace("SHORT", SHORT).replace("NUMBER", r"\p{N}{1,3}"),): ("gpt-4o", "llama4"),
    CODE: ("deepseek-coder",),
    DEEPSEEK: ("deepseek-llm",),
    DEEPSEEK_3: ("deepseek-v3", "hunyuan-dense"),
}
CUTS = {name: way for way, names in WAYS.items() for name in names}
# Known words stay whole, and texts have a start.
WHOLE = ("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "tekken")
COMPOSED = ("qwen2", "deepseek-r1-qwen", "megrez")
# What ends an answer in llama.cpp, whatever the file says besides.
ENDS = (
    "<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<|endoftext|>", "<|end_of_text|>", "<end_of_turn>", "<EOT>",
    "</s>", "<\uff5cend\u2581of\u2581sentence\uff5c>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>",
)  # fmt: skip
GIVEN = "tokenizer.ggml."


def tokenizer_in(metadata: Mapping[str, Any], name: str) -> Tokenizer:
    """The tokenizer of a file; bytes where it has none. name: of the file.

    Raises `InputError` for one of another kind, `SetupError` without the package tokenizers.
    """
    kind = metadata.get(f"{GIVEN}model", "none")
    if kind in ("none", "no_vocab"):
        return Bytes()
    try:
        import tokenizers
    except ImportError:
        raise SetupError(f"{name} needs the package tokenizers", do="pip install tokenizers") from None
    cut = str(metadata.get(f"{GIVEN}pre", "default"))
    if kind not in ("gpt2", "llama") or (kind == "gpt2" and cut not in CUTS):
        raise InputError(
            f"{name} has a tokenizer of the kind {kind}, cut as {cut}, which is not read",
            do=f"put the model's tokenizer.json beside it; read are llama, and gpt2 cut as {', '.join(CUTS)}",
        )
    tokens = [str(token) for token in metadata[f"{GIVEN}tokens"]]
    made = _bytes(tokenizers, metadata, tokens, cut) if kind == "gpt2" else _scored(tokenizers, metadata, tokens)
    types = metadata.get(f"{GIVEN}token_type", [])
    added = [(token, what) for token, what in zip(tokens, types, strict=False) if what in (CONTROL, USER)]
    made.add_special_tokens([token for token, what in added if what == CONTROL])
    made.add_tokens([tokenizers.AddedToken(token, normalized=False) for token, what in added if what == USER])
    begin, end = (metadata.get(f"{GIVEN}{part}_token_id") for part in ("bos", "eos"))
    marks = {
        side: (tokens[number], int(number))
        for side, number, wanted in (("bos", begin, kind == "llama" or cut in WHOLE), ("eos", end, False))
        if number is not None and metadata.get(f"{GIVEN}add_{side}_token", wanted)
    }
    if marks:
        around = [*([marks["bos"][0]] if "bos" in marks else []), "$A", *([marks["eos"][0]] if "eos" in marks else [])]
        made.post_processor = tokenizers.processors.TemplateProcessing(single=around, special_tokens=[*marks.values()])
    return Pieces(made=made)


def chat_settings(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What tokenizer_config.json would say: the template of chats, and the marks in it."""
    tokens = metadata.get(f"{GIVEN}tokens", [])
    found = {"chat_template": metadata.get("tokenizer.chat_template")}
    for name, short in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        number = metadata.get(f"{GIVEN}{short}_token_id")
        if number is not None and 0 <= number < len(tokens):
            found[f"{name}_token"] = tokens[number]
    return found


def ends_in(metadata: Mapping[str, Any]) -> tuple[int, ...]:
    """The tokens that end an answer: those that the file names, and those of the usual names."""
    tokens = metadata.get(f"{GIVEN}tokens", [])
    given = [metadata.get(f"{GIVEN}{part}_token_id") for part in ("eos", "eot", "eom")]
    known = [number for number, token in enumerate(tokens) if token in ENDS]
    return tuple(dict.fromkeys(end for end in (*given, *known) if end is not None and 0 <= end < len(tokens)))


def _bytes(tokenizers: Any, metadata: Mapping[str, Any], tokens: list[str], cut: str) -> Any:
    """Pieces of bytes, joined in the order of the merges (GPT-2's way)."""
    from tokenizers import pre_tokenizers

    merges = [tuple(str(pair).split(" ", 1)) for pair in metadata[f"{GIVEN}merges"]]
    vocab = {token: number for number, token in enumerate(tokens)}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, merges, ignore_merges=cut in WHOLE))
    splits = [pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated") for pattern in CUTS[cut]]
    letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.pre_tokenizer = pre_tokenizers.Sequence([*splits, letters])
    made.decoder = tokenizers.decoders.ByteLevel()
    if cut in COMPOSED:
        made.normalizer = tokenizers.normalizers.NFC()
    return made


def _scored(tokenizers: Any, metadata: Mapping[str, Any], tokens: list[str]) -> Any:
    """Pieces with scores, of which those of the best score are joined first (SentencePiece's way)."""
    scores = metadata[f"{GIVEN}scores"]
    vocab = {token: number for number, token in enumerate(tokens)}
    pairs = []
    for number, token in enumerate(tokens):
        for at in range(1, len(token)):
            left, right = token[:at], token[at:]
            if left in vocab and right in vocab:
                pairs.append((-scores[number], vocab[left], vocab[right], (left, right)))
    merges = [pair for *_, pair in sorted(pairs)]
    unknown = tokens[int(metadata.get(f"{GIVEN}unknown_token_id", 0))]
    parts, normal = tokenizers.decoders, tokenizers.normalizers
    made = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocab, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    )
    has_space = metadata.get(f"{GIVEN}add_space_prefix", True)
    made.normalizer = normal.Sequence([*([normal.Prepend(SPACE)] if has_space else []), normal.Replace(" ", SPACE)])
    strip = [parts.Strip(" ", 1, 0)] if has_space else []
    made.decoder = parts.Sequence([parts.Replace(SPACE, " "), parts.ByteFallback(), parts.Fuse(), *strip])
    return made
