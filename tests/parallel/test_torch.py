"""PyTorch's modules on MPI against one process. Skipped where PyTorch is not installed."""

import importlib.util

import pytest

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")


def test_data_parallel_is_one_process(mpirun):
    mpirun(3, "torch_data.py")


@pytest.mark.nightly
@pytest.mark.parametrize(("ranks", "how"), [(1, ""), (2, ""), (4, ""), (3, "apart")])
def test_data_parallel_on_other_ranks(mpirun, ranks, how):
    mpirun(ranks, "torch_data.py", *how.split())
