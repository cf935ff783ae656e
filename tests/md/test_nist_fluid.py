"""The smallest of the four reference configurations of NIST of the Lennard-Jones fluid, to all digits it prints."""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI

from hpckit.apps.md.config import Config
from hpckit.apps.md.model import make_system
from hpckit.apps.md.start import Start
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.io.particles.lammps_data import write_lammps_data
from hpckit.md.thermo import measure
from hpckit.plan.particles.snapshot import Snapshot

# Standard Reference Simulation Website of NIST, "Lennard-Jones Fluid Reference Calculations: Cuboid Cell" (public
# domain, U.S. government): configuration 4, 30 particles in a cube of edge 8, from -4 to 4.
PLACES = """
1.077169909511 -1.020988125886 -1.348259447733   0.1830884592213 -1.557698231574 -1.782405485883
-2.060346185437 3.92737827629 3.88955511529   1.936298049102 0.7181973326223 3.715169082037
-0.75141390417 -0.4184139469527 -3.250183630687   2.257391305584 -1.126577405146 -2.291542913197
0.1208868721243 -1.39561152 2.003709382777   3.327427055092 -1.476502868105 3.39402389845
2.130927328546 -1.106827632561 -0.1972896367169   2.117442019559 -0.1844743512029 0.9301638993772
-1.45937811958 2.382882188329 -3.78819940147   2.432313424884 -1.11853791544 -1.224088264651
2.41684536653 1.845499053895 2.906107003288   2.51524791205 0.03580976978134 -2.445590080636
1.113585242376 -2.478011342991 -0.00809218952796   1.261664073561 1.075432348722 -2.751715752259
-0.5811873476022 -2.429378395199 2.668996832737   -1.533182296119 2.319699660489 1.762429379767
2.639946585704 -0.7847515599358 2.251233247739   -1.927486378623 -1.432729425739 -2.439226375584
0.921280135544 -2.427925517025 2.150024430246   2.114172305774 0.9586575168591 -1.790678078404
-0.7312380271746 -3.366157234697 0.1376597954432   1.612569300954 -0.9233415846164 2.037484769332
3.967911812136 0.2002508998947 2.659432175592   1.188751191387 -0.05955638413419 -0.7363070447875
3.789497702433 1.570674334424 0.726591837482   2.786625773109 -1.524167484397 0.8358187540631
-1.629362446504 -1.139061532617 -0.7654084051377   2.592655226763 3.786335083587 -1.252452130644
"""
# Cutoff: energy of pairs, their virial, and what is beyond the cutoff.
PUBLISHED = {3.0: (-1.6790e1, -4.6249e1, -5.4517e-1), 4.0: (-1.7060e1, -4.7869e1, -2.3008e-1)}


def energies(folder, interaction):
    """What is measured of the configuration, at rest."""
    places = np.array(PLACES.split(), float).reshape(30, 3)
    box = np.full(3, -4.0), np.full(3, 4.0), (True,) * 3, np.arange(1, 31), np.zeros(30, int)
    frame = Snapshot(*box, places, np.zeros((30, 3), np.int32), masses=np.ones(1))
    write_lammps_data(str(folder / "nist.data"), frame)
    config = Config.model_validate({"system": {"file": str(folder / "nist.data")}, "interaction": interaction})
    made = make_system(config, Start(config), MPI.COMM_SELF, PhaseTimer())
    found = measure(made)
    made.mesh.close()
    return found


@pytest.mark.parametrize("cutoff", PUBLISHED)
def test_energy_virial_and_tail_have_the_digits_of_nist(tmp_path, cutoff):
    found = {tail: energies(tmp_path, {"cutoff": cutoff, "tail": tail}) for tail in (False, True)}
    virial = 3 * found[False].pressure * 8.0**3
    energy, pushes, beyond = PUBLISHED[cutoff]
    ours = found[False].potential, virial, found[True].potential - found[False].potential
    assert [f"{value:.4e}" for value in ours] == [f"{value:.4e}" for value in (energy, pushes, beyond)]


def test_energy_and_virial_of_shifted_forces_have_the_digits_of_nist(tmp_path):
    """Cutoff 3, energy and force taken to 0 there by a line."""
    interaction = {"kind": "lj_force_shifted", "parameters": (1.0, 1.0, 3.0), "cutoff": 3.0}
    found = energies(tmp_path, interaction)
    assert [f"{value:.4e}" for value in (found.potential, 3 * found.pressure * 8.0**3)] == [
        "-1.5001e+01",
        "-4.3096e+01",
    ]
