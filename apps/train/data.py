"""Training data: windows of a text, as tokens, or images of handwritten digits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

import hpckit
from hpckit.apps.train.config import Config
from hpckit.errors import InputError, SetupError
from hpckit.io.tokenizers import Tokenizer, tokenizer_of
from hpckit.plan.inputs.text import read_bytes
from hpckit.training.sampler import permuted

ANSWERS = "answers.json"  # in the output of a run that classifies images
MOST_TEXT = 4 << 30  # bytes
SPLIT_SEED = 1  # the validation digits do not depend on the run's seed
PIXELS, DIGITS, BRIGHTEST = (8, 8), 10, 16.0


@dataclass(frozen=True)
class TextSamples:
    """A text as samples: sample i has `window` tokens from i * window - shift on, each of which predicts the next.

    Every epoch has a shift of its own, from 0 to window - 1, so that the network sees each token at each position of a
    window; in `window` epochs each shift comes once. Samples that would leave the text lie at its ends: an epoch covers
    the whole text. tokens: int32. seed: of the shifts; None: none, as for validation.
    """

    tokens: np.ndarray
    window: int
    seed: int | None = None

    def __len__(self) -> int:
        targets = len(self.tokens) - 1
        return targets // self.window if self.seed is None else 1 - (1 - targets) // self.window

    def shift(self, epoch: int) -> int:
        """The shift of an epoch: a function of seed and epoch alone, so that it depends on no rank and no restart."""
        if self.seed is None:
            return 0
        times, place = divmod(epoch, self.window)
        return int(permuted(np.array([place]), self.window, self.seed, times)[0])

    def take(self, indices: np.ndarray, epoch: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Tokens and the ones that follow them: both int32 [n, window]."""
        starts = np.asarray(indices) * self.window - self.shift(epoch)
        starts = np.clip(starts, 0, len(self.tokens) - 1 - self.window)
        windows = self.tokens[starts[:, None] + np.arange(self.window + 1)]
        return np.ascontiguousarray(windows[:, :-1]), np.ascontiguousarray(windows[:, 1:])


@dataclass(frozen=True)
class Images:
    """Images [n, height, width, 1] with the number of the class of each, int32 [n]."""

    images: np.ndarray
    classes: np.ndarray

    def __len__(self) -> int:
        return len(self.images)

    def take(self, indices: np.ndarray, epoch: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Images and classes, the same in every epoch."""
        return self.images[indices], self.classes[indices]


@dataclass(frozen=True)
class DataSet:
    """The training and the validation data; tokenizer: of a text; classes: number of answers; name: the origin."""

    training: TextSamples | Images
    validation: TextSamples | Images
    classes: int
    name: str
    tokenizer: Tokenizer | None = None


def read_data(config: Config, window: int) -> DataSet:
    """The data of a run. window: tokens of a sample of a text.

    Raises `InputError` for a text that is too short or a batch that is larger than the data, `SetupError` where a
    package is missing.
    """
    found = _text(config, window) if config.model.is_language else _digits(config)
    if config.batch.size > len(found.training):
        raise InputError(
            f"a batch of {config.batch.size} samples, and {found.name} has {len(found.training)} to train on",
            do=f"set batch.size to at most {len(found.training)}, or take more data",
        )
    return found


def _text(config: Config, window: int) -> DataSet:
    tokenizer, text = tokenizer_of(config.data.tokenizer), read_text(config.data.file)
    tokens = tokenizer.encode(text)
    kept = round(len(tokens) * config.data.validation)
    name = config.data.file.name if config.data.file else "the sources of hpckit"
    parts = {"to train on": len(tokens) - kept, "for validation": kept}
    for what, count in parts.items():
        if count < window + 1:
            raise InputError(
                f"{name} has {count} tokens {what}, and a sample of {window} takes {window + 1}",
                likely="a text that is too short for the context",
                do="give a longer text in data.file, a smaller batch.window, or another share in data.validation",
            )
    training, validation = np.split(tokens, [len(tokens) - kept])
    return DataSet(
        TextSamples(training, window, config.seed),
        TextSamples(validation, window),
        tokenizer.vocab,
        f"{name}, {len(tokens)} tokens",
        tokenizer,
    )


def _digits(config: Config) -> DataSet:
    """The 1797 digits of the UCI set that scikit-learn ships, with pixels about 0."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as problem:
        raise SetupError(
            "the digits are in the package scikit-learn",
            likely="hpckit was installed without the extra `train`",
            do="pip install 'hpckit[train]'",
        ) from problem
    found = load_digits()
    images = (found.images / BRIGHTEST - 0.5).astype(config.arithmetic)[..., None]
    order = np.random.default_rng(SPLIT_SEED).permutation(len(images))
    kept = min(max(1, round(len(images) * config.data.validation)), len(images) - 1)
    parts = [Images(images[part], found.target[part].astype(np.int32)) for part in np.split(order, [len(order) - kept])]
    return DataSet(parts[0], parts[1], DIGITS, f"{len(images)} handwritten digits of scikit-learn")


def read_text(path: Path | None) -> str:
    """The text of a file; without one the sources of hpckit. Raises `InputError` if it is not UTF-8."""
    if path is None:
        home = Path(str(hpckit.__file__)).parent
        return "\n".join(file.read_text(encoding="utf-8") for file in sorted(home.rglob("*.py")))
    try:
        return read_bytes(path, "the text", MOST_TEXT).decode()
    except UnicodeDecodeError as problem:
        raise InputError(
            f"{path} is not UTF-8 text: byte {problem.start} is 0x{problem.object[problem.start]:02x}",
            likely="another encoding, or not a text",
            do="convert it, as with iconv -f LATIN1 -t UTF-8",
        ) from None
