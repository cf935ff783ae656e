"""States of a sharded model: whole or in shards, of the model and of its optimizer, for any number of replicas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from hpckit.collectives import all_gather, all_reduce
from hpckit.comm.agree import first_of_ranks
from hpckit.errors import InputError
from hpckit.torch.tensors import as_array
from hpckit.torch.units import ModuleUnit, Sharded

if TYPE_CHECKING:
    from hpckit.training.replicas import Replicas


class States:
    """What `FullyShardedDataParallel` has for checkpoints, and for norms over all shards."""

    module: nn.Module
    replicas: Replicas
    units: list[ModuleUnit]

    def full_state_dict(self) -> dict[str, torch.Tensor]:
        """The state of the module as one process has it, on every rank. Collective."""
        whole = {id(each.shard): self._gathered(each, each.shard) for unit in self.units for each in unit.parameters}
        return {
            name: whole[id(tensor)] if id(tensor) in whole else tensor.detach().clone()
            for name, tensor in self.module.state_dict(keep_vars=True).items()
        }

    def sharded_state_dict(self) -> dict[str, torch.Tensor]:
        """The state of this rank: its rows of each parameter, and all buffers."""
        return {name: tensor.detach().clone() for name, tensor in self.module.state_dict(keep_vars=True).items()}

    def load_full_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Take the state of one process: each rank keeps its rows. Collective; raises `InputError` on every rank, with
        all names and shapes that do not fit.
        """
        own = {id(each.shard): each for unit in self.units for each in unit.parameters}

        def shape_of(tensor: torch.Tensor) -> torch.Size:
            return own[id(tensor)].whole.shape if id(tensor) in own else tensor.shape

        def part_of(tensor: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
            if id(tensor) not in own:
                return given
            first, end = own[id(tensor)].rows[self.replicas.rank : self.replicas.rank + 2]
            return given[int(first) : int(end)]

        self._load(state, shape_of, part_of)

    def load_sharded_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Take what `sharded_state_dict` gave this rank of as many. Collective; raises `InputError` on every rank."""
        self._load(state, lambda tensor: tensor.shape, lambda _, given: given)

    def full_optimizer_state(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """The state of an optimizer of this model's parameters as one on the whole module has it, on every rank.

        Collective.
        """
        own = {id(each.shard): each for unit in self.units for each in unit.parameters}
        state = optimizer.state_dict()
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        whole = {
            number: {name: self._whole_of(own[id(parameters[number])], value) for name, value in entry.items()}
            for number, entry in state["state"].items()
        }
        return {**state, "state": whole}

    def load_full_optimizer_state(self, optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
        """Take the state of an optimizer of the whole module: each rank keeps its rows."""
        own = {id(each.shard): each for unit in self.units for each in unit.parameters}
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        cut: dict[int, dict[str, Any]] = {}
        for number, entry in state["state"].items():
            it = own[id(parameters[number])]
            first, end = (int(row) for row in it.rows[self.replicas.rank : self.replicas.rank + 2])
            cut[number] = {
                name: value[first:end].clone()
                if isinstance(value, torch.Tensor) and value.shape == it.whole.shape
                else value
                for name, value in entry.items()
            }
        optimizer.load_state_dict({**state, "state": cut})

    def clip_grad_norm_(self, limit: float) -> torch.Tensor:
        """Scale all gradients so that their norm over all ranks is at most `limit`; returns the norm before.

        Collective.
        """
        shards = [each.shard for unit in self.units for each in unit.trained if each.shard.grad is not None]
        squares = np.zeros(1)
        for shard in shards:
            assert shard.grad is not None
            squares += float(shard.grad.double().square().sum())
        if self.replicas.size > 1:
            all_reduce(squares, self.replicas.comm, "sum", deterministic=True).wait()
        norm = torch.tensor(float(np.sqrt(squares[0])), dtype=torch.float64)
        scale = min(1.0, limit / (float(norm) + 1e-6))
        if scale < 1.0:
            for shard in shards:
                assert shard.grad is not None
                shard.grad.mul_(scale)
        return norm

    def _whole_of(self, parameter: Sharded, value: Any) -> Any:
        """A part of an optimizer's state: rows are gathered, anything else is left as it is."""
        if isinstance(value, torch.Tensor) and value.shape == parameter.shard.shape and value.dim():
            return self._gathered(parameter, value)
        return value

    def _gathered(self, parameter: Sharded, rows: torch.Tensor) -> torch.Tensor:
        """The rows of all ranks."""
        whole = torch.empty(parameter.whole.shape, dtype=rows.dtype)
        counts = np.diff(parameter.rows) * parameter.width
        own = as_array(rows.detach().contiguous().reshape(-1))
        if self.replicas.size == 1:
            return whole.copy_(rows.detach())
        all_gather(own, self.replicas.comm, as_array(whole.reshape(-1)), counts=counts).wait()
        return whole

    def _load(self, state: Mapping[str, torch.Tensor], shape_of: Any, part_of: Any) -> None:
        held = self.module.state_dict(keep_vars=True)
        wrong = [f"{name} is missing" for name in held if name not in state]
        wrong += [f"{name} is not in the model" for name in state if name not in held]
        wrong += [
            f"{name} is {list(state[name].shape)}, not {list(shape_of(tensor))}"
            for name, tensor in held.items()
            if name in state and state[name].shape != shape_of(tensor)
        ]
        found = first_of_ranks(self.replicas.comm, "; ".join(wrong) or None)
        if found is not None:
            raise InputError(f"the state does not fit the model: {found[1]}", where=f"rank {found[0]}")
        self._wait_for_values()
        with torch.no_grad():
            for name, tensor in held.items():
                tensor.copy_(part_of(tensor, state[name]))
        self._wait_for_values()

    def _wait_for_values(self) -> None:
        raise NotImplementedError
