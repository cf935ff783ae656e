"""Rows of numbers that messages carry, in the memory of a device and in that which MPI uses."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.comm.device import Device
from hpckit.kernels.device_array import address


class MessageBuffer:
    """A message buffer for numbers of cells or particles: `values`, float64[count, width] on the device, and the memory
    that MPI uses: the same or, if MPI does not accept device memory, pinned host memory.
    """

    def __init__(self, device: Device, count: int, width: int) -> None:
        self.device, self.values, self.width = device, device.zeros((count, width)), width
        self.staged: np.ndarray | None = None if device.is_gpu else self.values
        if not device.direct:
            self.staged = device.pinned(self.values.nbytes).view(np.float64).reshape(count, width)

    def leave(self) -> None:
        """Return when `values`, written in the current stream, are in the memory that MPI uses."""
        if self.device.is_gpu:
            if self.staged is not None:
                self.device.copy_out(self.values, self.staged)
            event = self.device.event()
            event.record(self.device.current_stream())
            event.synchronize()

    def arrive(self) -> None:
        """Copy the data that MPI has received to `values`, in the current stream."""
        if self.device.is_gpu and self.staged is not None:
            self.device.copy_in(self.staged, self.values)

    def message(self, first: int, stop: int) -> Any:
        """Some of the rows, as a message argument for MPI."""
        if self.staged is not None:
            return self.staged[first:stop]
        row = 8 * self.width
        return [MPI.memory.fromaddress(address(self.values) + first * row, (stop - first) * row), MPI.BYTE]

    def on_host(self) -> np.ndarray:
        """The rows, for checksums."""
        return self.device.to_host(self.values) if self.staged is None else self.staged
