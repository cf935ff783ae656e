"""PyTorch's modules on MPI against one process. Skipped where PyTorch is not installed."""

import importlib.util

import pytest

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
NO_TRANSFORMERS = importlib.util.find_spec("transformers") is None
EVERY = ("torch_data", "torch_sharded", "torch_parallel")


def test_modules_on_ranks_are_those_of_one_process(mpirun):
    mpirun(2, "torch_ranks.py", *EVERY)


@pytest.mark.nightly
@pytest.mark.parametrize(("ranks", "how"), [(1, ""), (3, ""), (4, ""), (3, "apart")])
def test_modules_on_other_ranks_and_nodes(mpirun, ranks, how):
    mpirun(ranks, "torch_ranks.py", *how.split(), *EVERY, timeout=300)


@pytest.mark.nightly
@pytest.mark.skipif(NO_TRANSFORMERS, reason="transformers is not installed")
def test_models_of_transformers(mpirun):
    mpirun(2, "torch_ranks.py", "torch_transformers")
