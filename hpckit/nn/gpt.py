"""Language models in the shapes of GPT-2 and of Llama, as a `Sequential` of embed, blocks and head."""

from __future__ import annotations

import math

from hpckit.errors import InputError
from hpckit.nn.attention import Attention
from hpckit.nn.block import Recompute, Residual
from hpckit.nn.dropout import Dropout
from hpckit.nn.embedding import Embedding, Unembedding
from hpckit.nn.feedforward import FeedForward, GatedFeedForward
from hpckit.nn.layer import Layer, Sequential
from hpckit.nn.norms import LayerNorm, RMSNorm
from hpckit.nn.rotary import RopeScaling

STD = 0.02  # of initial weights (Radford et al. 2019)


def gpt2(
    vocab: int,
    layers: int,
    width: int,
    heads: int,
    context: int,
    tied: bool = True,
    dropout: float = 0.0,
    recompute: bool = False,
    *,
    attention_dropout: float | None = None,
    activation: str = "gelu",
    hidden: int | None = None,
    eps: float = 1e-5,
) -> Sequential:
    """Tokens [B, T] -> logits [B, T, vocab], the shape of GPT-2 (Radford et al. 2019).

    vocab: rows of the table, at least the vocabulary (`CrossEntropy` ignores padding). context: most tokens in a
    sample. dropout: rate for the embedding and each branch; attention_dropout: rate for the attention's weights, the
    same by default. recompute: blocks keep only their input for backward. activation: a name of `ACTIVATIONS` ("gelu"
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
        attention = Attention(width, heads, f"{name}.attention", std=STD, out_std=small, dropout=weights_dropout)
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
    recompute: bool = False,
    *,
    attention_dropout: float = 0.0,
    rope_scaling: RopeScaling | None = None,
) -> Sequential:
    """Tokens [B, T] -> logits [B, T, vocab], the shape of Llama (Touvron et al. 2023).

    hidden: width of the gated map. context: number of tokens that the model is meant for; rotary positions have no
    table, so longer samples run too. rope_scaling: slows the rotation, as in Llama 3.1. Other arguments: see `gpt2`.
    """
    _check(vocab=vocab, layers=layers, width=width, heads=heads, hidden=hidden, context=context)
    embed = Embedding(vocab, width, "embed", 0, STD, shared=tied)
    blocks: list[Layer] = []
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
        )
        parts: list[Layer] = [
            Residual(RMSNorm(width, f"{name}.norm1", eps), attention),
            Residual(RMSNorm(width, f"{name}.norm2", eps), GatedFeedForward(width, hidden, f"{name}.mlp", STD)),
        ]
        blocks.append(Sequential(parts, ["attention", "mlp"]))
    logits = Unembedding(vocab, width, "head", STD, embed.token if tied else None)
    return _model(embed, blocks, RMSNorm(width, "head.norm", eps), logits, recompute)


def _model(
    embed: Layer, blocks: list[Layer], norm: LayerNorm | RMSNorm, logits: Unembedding, recompute: bool
) -> Sequential:
    names = ["embed", *(f"block.{i}" for i in range(len(blocks))), "head"]
    kept: list[Layer] = [Recompute(block) for block in blocks] if recompute else blocks
    return Sequential([embed, *kept, Sequential([norm, logits], ["norm", "logits"])], names)


def _check(**numbers: int) -> None:
    wrong = [f"{name} = {value}" for name, value in numbers.items() if value < 1]
    if wrong:
        raise InputError(f"the sizes of a model must be 1 or more: {', '.join(wrong)}", do="give numbers of 1 or more")
