"""A whole transformer turned into what a rank holds of it."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from hpckit.errors import InputError
from hpckit.nn.cuts import cuts, own_part, parts_of
from hpckit.nn.dropout import Dropout
from hpckit.nn.embedding import Embedding, Unembedding
from hpckit.nn.feedforward import Experts, GatedFeedForward
from hpckit.nn.layer import Sequential
from hpckit.nn.linear import Linear
from hpckit.nn.loss import CrossEntropy
from hpckit.nn.norms import LayerNorm, RMSNorm
from hpckit.nn.parameters import Parameter
from hpckit.nn.transformer.attention import Attention
from hpckit.nn.transformer.block import Recompute, Residual
from hpckit.training.tensor.ranks import Ranks
from hpckit.training.tensor.tokens import AttentionBranch, Branch, TokenDropout, TokenNorm
from hpckit.training.tensor.vocabulary import TensorCrossEntropy, TensorEmbedding, TensorUnembedding

if TYPE_CHECKING:
    from hpckit.nn.layer import Layer


def tensor_parallel(model: Sequential, loss: Any, ranks: Ranks) -> tuple[Sequential, Any]:
    """The part of this rank of a transformer and of its loss; what is given stays as it is.

    Raises `InputError` where heads or widths do not divide, or a layer has no such form.
    """
    whole = cuts(model, ranks.parts)
    made: dict[tuple[int, int], Parameter] = {}

    def part(parameter: Parameter, number: int = 0) -> Parameter:
        key = id(parameter), number
        if key not in made:
            made[key] = own_part(parameter, whole.get(parameter.name), number)
        return made[key]

    def parts(parameter: Parameter) -> list[Parameter]:
        return [part(parameter, number) for number in ranks.held]

    def linear(given: Linear, number: int, bias: bool = True) -> Linear:
        new = copy.copy(given)
        new.weight = part(given.weight, number)
        new.bias = part(given.bias, number) if given.bias is not None and bias else None
        return new

    def norm(given: LayerNorm | RMSNorm) -> TokenNorm:
        new = copy.copy(given)
        for name in ("gain", "bias"):
            if hasattr(given, name):
                setattr(new, name, part(getattr(given, name)))
                getattr(new, name).partial = True
        return TokenNorm(new, ranks)

    def branch(given: Any, number: int) -> Any:
        """A part of a branch: some heads, or some columns."""
        new = copy.copy(given)
        if isinstance(given, Attention):
            new.heads, new.kv_heads = given.heads // ranks.parts, given.kv_heads // ranks.parts
            new.share = number, ranks.parts
            new.qkv, new.out = linear(given.qkv, number), linear(given.out, number, bias=False)
        else:
            new.up, new.down = linear(given.up, number), linear(given.down, number, bias=False)
            if isinstance(given, GatedFeedForward):
                new.gate = linear(given.gate, number)
        return new

    def mixture(given: Experts) -> Experts:
        """The experts work on a rank's own tokens: each rank has all of them, or tokens travel to their ranks."""
        if len(ranks.held) > 1:
            raise InputError("fixed parts of a layer are for layers without experts", do="take layer_parts=0")
        new = copy.copy(given)
        new.router, new.shared = copy.copy(given.router), copy.copy(given.shared)
        linears = [new.router]
        if new.shared is not None:
            for name in ("gate", "up", "down"):
                setattr(new.shared, name, copy.copy(getattr(new.shared, name)))
                linears.append(getattr(new.shared, name))
        for each in linears:
            each.weight = part(each.weight)
        new.gate, new.up, new.down = part(given.gate), part(given.up), part(given.down)
        for parameter in new.parameters():
            parameter.partial = True
        new.chosen = given.chosen.copy()
        return new

    def of(layer: Any) -> Layer:
        if isinstance(layer, Sequential):
            return Sequential([of(each) for each in layer.layers], layer.names)
        if isinstance(layer, Recompute):
            return Recompute(of(layer.layer))
        if isinstance(layer, Residual) and isinstance(layer.branch, Experts):
            dropped = None if layer.dropout is None else TokenDropout(layer.dropout, ranks)
            return Residual(norm(layer.norm), mixture(layer.branch), dropped)
        if isinstance(layer, Residual):
            last: Any = layer.branch.out if isinstance(layer.branch, Attention) else layer.branch.down
            bias = None if last.bias is None else part(last.bias)
            dropout = None if layer.dropout is None else TokenDropout(layer.dropout, ranks)
            own = [branch(layer.branch, number) for number in ranks.held]
            kind = AttentionBranch if isinstance(layer.branch, Attention) and ranks.chunks > 1 else Branch
            return kind(norm(layer.norm), own, bias, dropout, ranks, ranks.chunks)
        if isinstance(layer, Embedding):
            new = copy.copy(layer)
            new.position = None if layer.position is None else part(layer.position)
            return TensorEmbedding(new, parts(layer.token), ranks)
        if isinstance(layer, Unembedding):
            return TensorUnembedding(parts(layer.weight), ranks)
        if isinstance(layer, Dropout):
            return TokenDropout(layer, ranks)
        assert isinstance(layer, LayerNorm | RMSNorm), "misfits names all others"
        return norm(layer)

    *_, head = parts_of(model)
    if not isinstance(head, Unembedding) or not isinstance(loss, CrossEntropy):
        raise InputError(
            "tensor parallelism needs a model that ends with a head over the vocabulary, and CrossEntropy",
            do="give hp.nn.gpt2(...) or hp.nn.llama(...) and its CrossEntropy, or a mesh without tp",
        )
    found = Sequential([of(layer) for layer in model.layers], model.names)
    return found, TensorCrossEntropy(loss, parts(head.weight), ranks)
