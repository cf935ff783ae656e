"""Language models in the shapes of GPT-2 and of Llama, as a `Sequential` of embed, blocks and head; their texts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hpckit.errors import InputError
from hpckit.nn.dropout import Dropout
from hpckit.nn.embedding import Embedding, Unembedding
from hpckit.nn.feedforward import Experts, FeedForward, GatedFeedForward
from hpckit.nn.layer import KeyValues, Layer, Pass, Sequential
from hpckit.nn.norms import LayerNorm, RMSNorm
from hpckit.nn.transformer.attention import Attention
from hpckit.nn.transformer.block import Recompute, Residual
from hpckit.nn.transformer.rotary import RopeScaling

STD = 0.02  # of initial weights (Radford et al. 2019)


def gpt2(
    vocab: int,
    layers: int,
    width: int,
    heads: int,
    context: int,
    tied: bool = True,
    dropout: float = 0.0,
    recompute: bool | str = False,
    *,
    attention_dropout: float | None = None,
    activation: str = "gelu",
    hidden: int | None = None,
    eps: float = 1e-5,
) -> Sequential:
    """Tokens [B, T] -> logits [B, T, vocab], the shape of GPT-2 (Radford et al. 2019).

    vocab: rows of the table, at least the vocabulary (`CrossEntropy` ignores padding). context: most tokens in a
    sample. dropout: rate for the embedding and each branch; attention_dropout: rate for the attention's weights, the
    same by default. recompute: "blocks" (or True) keep only their input
    for backward, "attention" keeps only its own. activation: a name of `ACTIVATIONS` ("gelu"
    is the tanh form). hidden: width inside a block's MLP, by default 4 width. eps: that of the norms.
    The maps back to the residual start smaller by sqrt(2 layers), as in GPT-2.
    """
    hidden = 4 * width if hidden is None else hidden
    weights_dropout = dropout if attention_dropout is None else attention_dropout
    _check(vocab=vocab, layers=layers, width=width, heads=heads, context=context, hidden=hidden)
    embedding = Embedding(vocab, width, "embed", context, STD, shared=tied)
    embed: Layer = Sequential([embedding, Dropout(dropout, "embed.dropout")]) if dropout else embedding
    blocks: list[Layer] = []
    for name in (f"block.{i}" for i in range(layers)):
        small = STD / math.sqrt(2 * layers)
        attention = Attention(
            width,
            heads,
            f"{name}.attention",
            std=STD,
            out_std=small,
            dropout=weights_dropout,
            recompute=recompute == "attention",
        )
        parts: list[Layer] = [
            Residual(LayerNorm(width, f"{name}.norm1", eps), attention, Dropout(dropout, f"{name}.dropout1")),
            Residual(
                LayerNorm(width, f"{name}.norm2", eps),
                FeedForward(width, hidden, f"{name}.mlp", STD, small, activation),
                Dropout(dropout, f"{name}.dropout2"),
            ),
        ]
        blocks.append(Sequential(parts, ["attention", "mlp"]))
    norm = LayerNorm(width, "head.norm", eps)
    return _model(
        embed, blocks, norm, Unembedding(vocab, width, "head", STD, embedding.token if tied else None), recompute
    )


def llama(
    vocab: int,
    layers: int,
    width: int,
    heads: int,
    kv_heads: int,
    hidden: int,
    context: int,
    rope_base: float = 10000.0,
    tied: bool = False,
    eps: float = 1e-5,
    recompute: bool | str = False,
    *,
    attention_dropout: float = 0.0,
    rope_scaling: RopeScaling | None = None,
    experts: int = 0,
    top_k: int = 2,
    balance: float = 0.01,
    router_z: float = 0.001,
    shared: int = 0,
    capacity: float = 0.0,
) -> Sequential:
    """Tokens [B, T] -> logits [B, T, vocab], the shape of Llama (Touvron et al. 2023), with experts that of Mixtral.

    hidden: width of the gated map. context: number of tokens that the model is meant for; rotary positions have no
    table, so longer samples run too. rope_scaling: slows the rotation, as in Llama 3.1. experts: gated maps in
    each block, of which each token takes `top_k`; balance, router_z, shared, capacity: see `Experts`. Others: see
    `gpt2`.
    """
    _check(vocab=vocab, layers=layers, width=width, heads=heads, hidden=hidden, context=context)
    embed = Embedding(vocab, width, "embed", 0, STD, shared=tied)
    blocks: list[Layer] = []

    def inside(name: str) -> GatedFeedForward | Experts:
        if not experts:
            return GatedFeedForward(width, hidden, name, STD)
        more = {"balance": balance, "z": router_z, "capacity": capacity}
        return Experts(width, hidden, experts, top_k, name, STD, shared=shared, **more)

    for name in (f"block.{i}" for i in range(layers)):
        attention = Attention(
            width,
            heads,
            f"{name}.attention",
            kv_heads,
            rope_base=rope_base,
            bias=False,
            std=STD,
            dropout=attention_dropout,
            rope_scaling=rope_scaling,
            recompute=recompute == "attention",
        )
        parts: list[Layer] = [
            Residual(RMSNorm(width, f"{name}.norm1", eps), attention),
            Residual(RMSNorm(width, f"{name}.norm2", eps), inside(f"{name}.mlp")),
        ]
        blocks.append(Sequential(parts, ["attention", "mlp"]))
    logits = Unembedding(vocab, width, "head", STD, embed.token if tied else None)
    return _model(embed, blocks, RMSNorm(width, "head.norm", eps), logits, recompute)


def continued(
    model: Layer,
    tokens: np.ndarray,
    count: int,
    *,
    context: int,
    vocab: int,
    temperature: float = 1.0,
    top_k: int = 0,
    seed: int = 0,
) -> np.ndarray:
    """The `tokens` (int32 [n], n >= 1) and `count` more, each chosen by `chosen` from what the model expects.

    The model sees the last `context` tokens. The same seed gives the same text. While the text fits the context, a
    token costs its own work and a look at the keys and values before (`KeyValues`); behind that every token's position
    in the window changes, and the window is worked out anew.
    """
    text = list(map(int, tokens))
    random = np.random.default_rng(seed)
    cache = KeyValues(min(context, len(text) + count))
    for _ in range(count):
        if len(text) <= context:
            window, step = text[cache.length :], Pass(training=False, cache=cache)
        else:
            window, step = text[-context:], Pass(training=False)
        logits = model.forward(np.array([window], np.int32), step)[0]
        cache.length += len(window) if step.cache else 0
        last = np.asarray(logits).reshape(len(window), -1)[-1, :vocab]
        text.append(chosen(last, temperature, top_k, random))
    return np.array(text, np.int32)


def chosen(logits: np.ndarray, temperature: float, top_k: int, random: Any) -> int:
    """A token drawn with the probabilities softmax(logits / temperature), among the `top_k` largest (0: among all).

    Temperature 0 is greedy: the largest logit, of equal ones the first.
    """
    if temperature == 0:
        return int(logits.argmax())
    values = logits.astype(np.float64) / temperature
    if 0 < top_k < len(values):
        least = np.partition(values, -top_k)[-top_k]
        values = np.where(values >= least, values, -np.inf)
    sums = np.cumsum(np.exp(values - values.max()))
    drawn = min(random.random() * sums[-1], np.nextafter(sums[-1], 0))  # below the end even where it is rounded up
    return int(np.searchsorted(sums, drawn, side="right"))


def _model(
    embed: Layer, blocks: list[Layer], norm: LayerNorm | RMSNorm, logits: Unembedding, recompute: bool | str
) -> Sequential:
    if recompute not in (False, True, "blocks", "attention"):
        raise InputError(f"recompute is {recompute!r}", do='give True or "blocks", "attention", or False')
    names = ["embed", *(f"block.{i}" for i in range(len(blocks))), "head"]
    kept: list[Layer] = [Recompute(block) for block in blocks] if recompute in (True, "blocks") else blocks
    return Sequential([embed, *kept, Sequential([norm, logits], ["norm", "logits"])], names)


def _check(**numbers: int) -> None:
    wrong = [f"{name} = {value}" for name, value in numbers.items() if value < 1]
    if wrong:
        raise InputError(f"the sizes of a model must be 1 or more: {', '.join(wrong)}", do="give numbers of 1 or more")
