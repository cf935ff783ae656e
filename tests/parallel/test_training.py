"""Data parallelism and pipelines on MPI ranks."""


def test_training_on_6_ranks_and_on_parts_of_them(mpirun):
    mpirun(6, "training_ranks.py", timeout=200)
