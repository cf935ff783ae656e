"""Files: fields that xarray and VTK open, particles as other programs write them, weights as safetensors."""

from hpckit import loaded_on_use

_HOMES = {
    "DumpWriter": "hpckit.io.particles.lammps_dump",
    "FieldWriter": "hpckit.io.fields.writer",
    "PairTable": "hpckit.io.particles.lammps_table",
    "Safetensors": "hpckit.io.safetensors",
    "open_fields": "hpckit.io.fields.reader",
    "read_lammps_data": "hpckit.io.particles.lammps_data",
    "read_lammps_dump": "hpckit.io.particles.lammps_dump",
    "save_safetensors": "hpckit.io.safetensors",
    "write_lammps_data": "hpckit.io.particles.lammps_data",
    "write_lammps_table": "hpckit.io.particles.lammps_table",
}
__all__ = list(_HOMES)
__getattr__, __dir__ = loaded_on_use(__name__, _HOMES)
