"""The perplexity that `hpckit bench serving` prints: of a model that knows nothing, and by its formula."""

from __future__ import annotations

import inspect
import json.decoder
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import by_day

from hpckit.bench.train.serving import perplexity
from hpckit.bench.train.serving.perplexity import FORMATS, perplexity_of
from hpckit.io.safetensors import Safetensors, save_safetensors
from hpckit.serving import Engine, ServingStep, TextPiece

sys.path.insert(0, str(Path(__file__).parents[1] / "serving"))
from models import write_model

TEXTS, LENGTH = 3, 37


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(perplexity, "TEXTS", TEXTS)
    monkeypatch.setattr(perplexity, "LENGTH", LENGTH)
    return write_model(tmp_path / "model", "llama", vocab_size=256)


@pytest.mark.parametrize("kind", by_day(FORMATS, "float32", "q4_0"))
def test_a_model_that_knows_nothing_has_that_of_its_tokens(kind, folder):
    path = folder / "model.safetensors"
    tensors = {name: np.array(tensor) for name, tensor in Safetensors(folder).items()}
    tensors["lm_head.weight"][:] = 0
    path.unlink()
    save_safetensors(path, tensors, {"format": "pt"})
    assert perplexity_of(folder, kind) == pytest.approx(256, rel=1e-12)


def test_it_is_the_formula_of_the_logits(folder):
    engine, text, wanted = Engine(folder, texts=LENGTH), inspect.getsource(json.decoder), []
    for n in range(TEXTS):
        tokens = [*text[n * LENGTH : (n + 1) * LENGTH].encode()]
        step = ServingStep((TextPiece(0, 0, tuple(tokens), (0, 1), LENGTH),))
        likely = np.exp(engine.model.run(step).astype(np.float64))
        likely /= likely.sum(axis=1, keepdims=True)
        wanted += [likely[place - 1, token] for place, token in enumerate(tokens) if place]
    expected = np.prod(np.array(wanted) ** (-1 / len(wanted)))
    assert perplexity_of(folder, "float32") == pytest.approx(expected, rel=1e-9)
    assert perplexity_of(folder, "q4_0") == pytest.approx(expected, rel=0.5)
    assert perplexity_of(folder, "q4_0") != pytest.approx(expected, rel=1e-6)
