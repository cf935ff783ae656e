"""Files of fields that xarray and VTK open, written in parallel with a plain h5py."""
