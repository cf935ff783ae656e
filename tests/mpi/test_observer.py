"""What operations report to: the checks are in tests/programs/observers.py."""

import pytest
from conftest import by_day


@pytest.mark.parametrize("ranks", by_day([1, 3], 3))
def test_observers_and_tags_of_meshes(mpirun, ranks):
    assert "all good" in mpirun(ranks, "observers.py").stdout
