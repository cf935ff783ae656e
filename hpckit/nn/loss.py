"""The loss of a classification, over classes or a vocabulary."""

from __future__ import annotations

from typing import Any

from hpckit.errors import InputError
from hpckit.kernels.device_array import placed
from hpckit.kernels.nn import dispatch
from hpckit.kernels.nn.memory import empty
from hpckit.nn.linear import rows
from hpckit.nn.parameters import whole_numbers


class CrossEntropy:
    """Softmax and negative log-likelihood in one, in nats.

    vocab: number of classes. padded: columns of the logits, vocab or more; columns beyond `vocab` are ignored
    and get the gradient 0. Negative targets are ignored (padding of an uneven batch).
    """

    def __init__(self, vocab: int, padded: int | None = None) -> None:
        self.vocab, self.padded = vocab, vocab if padded is None else padded
        if not 1 <= self.vocab <= self.padded:
            raise InputError(
                f"{self.vocab} classes do not fit {self.padded} columns of logits",
                do="give `padded` as the vocabulary rounded up, or leave it out",
            )

    def forward(self, logits: Any, targets: Any) -> tuple[Any, Any]:
        """The loss summed over all targets; backward reuses the logits' memory.

        The sum is a number; on a GPU it is an array of one element, for which `float` waits. logits: [..., padded];
        targets: integers [...] below vocab; those of the host are copied to the logits' GPU. Raises `InputError` for
        other shapes or targets.
        """
        targets = whole_numbers(targets, "targets")
        flat, wanted = rows(logits), targets.reshape(-1)
        if flat.shape != (wanted.size, self.padded):
            raise InputError(f"{targets.shape} targets need logits {(*targets.shape, self.padded)}, not {logits.shape}")
        if wanted.size and wanted.max() >= self.vocab:
            raise InputError(f"target {wanted.max()} is not one of the {self.vocab} classes, 0 to {self.vocab - 1}")
        wanted, inverse = placed(wanted, flat), empty((len(flat),), flat)
        loss = dispatch.cross_entropy(flat, wanted, self.vocab, inverse)
        return loss, (logits, wanted, inverse)

    def backward(self, saved: Any, scale: float) -> Any:
        """The gradient of scale times the loss. scale: 1 / number of targets of the global batch, for their mean."""
        logits, targets, inverse = saved
        dispatch.cross_entropy_gradient(rows(logits), targets, inverse, scale)
        return logits

    def answers(self, logits: Any) -> Any:
        """The likeliest class of each row, the first of equal ones."""
        return rows(logits)[:, : self.vocab].argmax(axis=1)
