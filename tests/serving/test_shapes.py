"""Models of every shape: logits and greedy tokens of transformers."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import by_day
from models import CONFIGS, write_model

from hpckit.serving import Engine, Sampling, ServingStep, TextPiece

PROMPT = np.random.default_rng(5).integers(0, 61, 40).tolist()


@pytest.mark.parametrize("count", by_day([40, 200], 40))
@pytest.mark.parametrize("kind", CONFIGS)
def test_logits_and_greedy_tokens_are_those_of_transformers(kind, count, tmp_path):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch = pytest.importorskip("torch", reason="torch is not installed")
    folder = write_model(tmp_path, kind)
    theirs, told = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True
    )
    assert not told["missing_keys"]
    assert not told["unexpected_keys"]
    with torch.no_grad():
        expected = theirs(torch.tensor([PROMPT])).logits[0].numpy()
    engine = Engine(folder, texts=64, rows=64)
    found = engine.model.run(ServingStep((TextPiece(0, 0, tuple(PROMPT), (3, 1), len(PROMPT)),)))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    written = engine.generate([PROMPT], Sampling(max_tokens=count, ignore_end=True))[0].tokens
    with torch.no_grad():
        theirs.generation_config.eos_token_id = None
        given = torch.tensor([PROMPT])
        settings = {"max_new_tokens": count, "do_sample": False, "pad_token_id": 0}
        every = theirs.generate(given, attention_mask=torch.ones_like(given), **settings)
    assert written == every[0, len(PROMPT) :].tolist()
