"""Gossip plans: proofs, planted faults, spectral gaps in closed form, prices and drawings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hpckit.cli.verbs.plan.verb import main
from hpckit.errors import InputError, PlanError
from hpckit.plan.collective.gossip import GRAPHS, gossip_plan, mixing_matrix, spectral_gap
from hpckit.plan.drawing import draw, draw_svg
from hpckit.plan.machine.machine import Level, Machine
from hpckit.plan.pricing import price
from hpckit.plan.proving import prove

FLAT = Machine("flat", (Level("all", 0, 2e-6, 5e9),), 1e-6, 10e9)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("p", [1, 2, 3, 4, 6, 7, 8, 16, 35])
def test_rounds_are_doubly_stochastic(graph, p):
    if graph == "hypercube" and p & (p - 1):
        with pytest.raises(InputError, match="hypercube"):
            gossip_plan(graph, p)
        return
    for turn in (0, 1, 5):
        plan = gossip_plan(graph, p, turn)
        proof = prove(plan)
        assert (proof.ranks, proof.messages) == (p, plan.length * p)
        matrix = mixing_matrix(plan)
        np.testing.assert_allclose(matrix.sum(0), 1, rtol=1e-15)
        np.testing.assert_allclose(matrix.sum(1), 1, rtol=1e-15)
        assert matrix.min() >= 0


def test_a_thousand_ranks_are_proved():
    for graph in GRAPHS:
        assert prove(gossip_plan(graph, 16384)).ranks == 16384


@pytest.mark.parametrize("p", [3, 4, 5, 8, 13, 64])
def test_gap_of_the_ring(p):
    factor = np.abs(1 + 2 * np.cos(2 * np.pi * np.arange(1, p) / p)).max() / 3
    assert spectral_gap(gossip_plan("ring", p)) == pytest.approx(1 - factor, abs=1e-12)


def test_gaps_of_hypercube_torus_and_exponential_graph():
    for d in (1, 2, 3, 6):
        assert spectral_gap(gossip_plan("hypercube", 2**d)) == pytest.approx(2 / (d + 1), abs=1e-12)
    rows, columns = 5, 7
    k, m = np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij")
    eigen = np.abs(1 + 2 * np.cos(2 * np.pi * k / rows) + 2 * np.cos(2 * np.pi * m / columns)).reshape(-1)[1:] / 5
    assert spectral_gap(gossip_plan("torus", 35, shape=(rows, columns))) == pytest.approx(1 - eigen.max(), abs=1e-12)
    # log2(p) rounds on the exponential graph give the exact mean, and fewer do not.
    assert spectral_gap(*(gossip_plan("exponential", 16, turn) for turn in range(4))) == pytest.approx(1, abs=1e-12)
    assert spectral_gap(*(gossip_plan("exponential", 16, turn) for turn in range(3))) < 0.5


def test_planted_faults_are_named():
    plan = gossip_plan("ring", 6)
    shares = plan.shares.copy()
    shares[1, 4] = 2
    with pytest.raises(PlanError, match="rank 4: the weights that it gives add up to 4/3"):
        prove(replace(plan, shares=shares))
    shares[0, 4] = 0  # its own sum is right again, but not what the others get
    with pytest.raises(PlanError, match=r"rank 3: the weights that its buffer gets add up to 4/3"):
        prove(replace(plan, shares=shares))
    shares[0, 4] = -1
    with pytest.raises(PlanError, match="rank 4 gives a negative weight"):
        prove(replace(plan, shares=shares))

    def lost(i):
        step = plan.step(i)
        peers = step.sends.peer.copy()
        peers[2] = -1
        return replace(step, sends=replace(step.sends, peer=peers)) if i == 1 else step

    with pytest.raises(PlanError, match="step 1: rank 1 receives from rank 2, whose side of it is with nobody"):
        prove(replace(plan, step=lost))

    def twice(i):
        step = plan.step(i)
        peers = step.sends.peer.copy()
        peers[2] = peers[3]
        return replace(step, sends=replace(step.sends, peer=peers)) if i == 0 else step

    with pytest.raises(PlanError, match="step 0: rank 2 sends to rank 4, whose side of it is with rank 3"):
        prove(replace(plan, step=twice))


def test_prices_and_drawings():
    """Both neighbors' buffers of n bytes, one after the other: 2 (alpha + n beta)."""
    seconds = price(gossip_plan("ring", 8), FLAT, 1e6).seconds
    assert seconds == pytest.approx(2e-6 + 2 * (1e-6 + 1e6 / 5e9) + 1e-6, rel=1e-12)
    assert "0>1" in draw(gossip_plan("ring", 4))
    assert draw_svg(gossip_plan("torus", 9), FLAT, 1e6).count("<title>") == 2 * 4 * 9


def test_on_the_command_line(capsys):
    assert main(["gossip", "--ranks", "8", "--bytes", "1MiB", "--prove"]) == 0
    said = capsys.readouterr().out
    for graph in GRAPHS:
        assert f"proved: gossip by {graph}: 8 ranks" in said
    assert "spectral gap" in said
    for given, match in (("star", "no graph 'star'"), ("rings", "did you mean 'ring'")):
        with pytest.raises(InputError) as caught:
            main(["gossip", "--ranks", "8", "--algorithm", given])
        assert match in caught.value.report()
    with pytest.raises(InputError, match="torus of 2 x 3 is not one of 8"):
        gossip_plan("torus", 8, shape=(2, 3))
    with pytest.raises(InputError, match="takes no shape"):
        gossip_plan("ring", 8, shape=(2, 4))
