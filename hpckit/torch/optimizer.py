"""ZeRO-1 for any optimizer of PyTorch: each replica keeps the state of its own parameters only.

Rajbhandari et al. 2020, "ZeRO: memory optimizations toward training trillion parameter models", arXiv:1910.02054.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch.optim import Optimizer

from hpckit.collectives import all_gather, broadcast
from hpckit.comm.agree import share_json
from hpckit.comm.shared import calls
from hpckit.comm.shared.group import node_group
from hpckit.comm.shared.symmetric import shared_once
from hpckit.errors import InputError
from hpckit.torch.tensors import KINDS, as_array, by_dtype, kind_of, room_of, views_of
from hpckit.training.replicas import Replicas


class ZeroRedundancyOptimizer(Optimizer):
    """An optimizer of PyTorch whose state is spread over the replicas on `mesh_axis`.

        model = DistributedDataParallel(model, mesh["dp"])
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, mesh["dp"], lr=1e-3)

    Each replica makes an `optimizer_class(…, **defaults)` for its own parameters: whole tensors, dealt by size, so any
    optimizer that treats them one by one gives the bits that it gives without shards. After a step all replicas have
    the new values. Where they share a node, parameters stand in its memory once, and a step moves nothing: values that
    one rank writes are there for all, so let one rank alone initialize them, or all the same.

    params: parameters, or groups of them, as the class takes them. Schedulers change `param_groups` as usual.
    `state_dict` is that of the class itself on one rank, so it goes from any number of replicas to any other.
    Collective, as are `step` and `state_dict`. Raises `InputError`.
    """

    def __init__(
        self, params: Iterable[Any], optimizer_class: type[Optimizer], mesh_axis: Any, **defaults: Any
    ) -> None:
        if not (isinstance(optimizer_class, type) and issubclass(optimizer_class, Optimizer)):
            raise InputError(
                f"the class of an optimizer is needed, not {optimizer_class!r}",
                do="give the class, as torch.optim.AdamW, and its arguments behind the axis",
            )
        self.replicas = replicas = Replicas(mesh_axis)
        self._made = False
        super().__init__(params, defaults)
        self._made = True
        self._every: list[torch.Tensor] = [p for group in self.param_groups for p in group["params"]]
        self.owner = _dealt([p.numel() for p in self._every], replicas.size)
        self._group = node_group(replicas.comm) if replicas.size > 1 and replicas.share_node else None
        self._values: list[tuple[np.ndarray, list[int]]] = []  # a vector of each dtype, elements of each replica
        for dtype, places in by_dtype(self._every):
            self._place(dtype, places)
        self._share()  # the values of the owners count from here on
        self._mine: list[int] = [place for place, owner in enumerate(self.owner) if owner == replicas.rank]
        own, first = [], 0
        for group in self.param_groups:
            count = len(group["params"])
            held = [self._every[place] for place in self._mine if first <= place < first + count]
            own.append({**group, "params": held})
            first += count
        self.own = optimizer_class(own, **defaults)
        self.defaults.update(self.own.defaults)  # schedulers ask whether there is a momentum
        for group, complete in zip(self.param_groups, self.own.param_groups, strict=True):
            for name, value in complete.items():
                group.setdefault(name, value)

    def _place(self, dtype: torch.dtype, places: list[int]) -> None:
        """Move the values of some parameters into one vector, the part of each replica behind that of the one before.

        Where the replicas share a node the vector is there once.
        """
        order = sorted(places, key=lambda place: self.owner[place])
        counts = [0] * self.replicas.size
        for place in places:
            counts[self.owner[place]] += room_of(self._every[place])
        kind_of(dtype)
        kind = KINDS[dtype][0]
        shared = self._group is not None
        vector = shared_once(self.replicas.comm, sum(counts), kind) if shared else np.zeros(sum(counts), kind)
        views = views_of(vector, [self._every[place] for place in order])
        for place, view in zip(order, views, strict=True):
            if not shared or self.owner[place] == self.replicas.rank:
                view.copy_(self._every[place].detach())
        self._wait()
        for place, view in zip(order, views, strict=True):
            self._every[place].data = view
        self._values.append((vector, counts))

    def _wait(self) -> None:
        if self._group is not None:
            calls.barrier(self._group)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refused once the parameters are dealt: raises `InputError`."""
        if self._made:
            raise InputError("the parameters are dealt to the replicas", do="make the optimizer anew, with all groups")
        super().add_param_group(param_group)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the own parameters, and have those of the other replicas."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group, held in zip(self.param_groups, self.own.param_groups, strict=True):
            held.update({name: value for name, value in group.items() if name != "params"})
        self._wait()  # others may still compute with the old values
        if self._mine:
            self.own.step()
        self._share()
        return loss

    def _share(self) -> None:
        """Have the values of all replicas."""
        self._wait()
        if self._group is None and self.replicas.size > 1:
            rank = self.replicas.rank
            for vector, counts in self._values:
                first = sum(counts[:rank])
                all_gather(vector[first : first + counts[rank]], self.replicas.comm, vector, counts=counts).wait()

    def state_dict(self) -> dict[str, Any]:
        """The state of all parameters, as one `optimizer_class` on all of them has it; on every replica. Collective."""
        held = self.own.state_dict()["state"]
        mine = {place: held.get(number, {}) for number, place in enumerate(self._mine)}
        state: dict[int, dict[str, Any]] = {}
        for place, owner in enumerate(self.owner):
            entry = _sent(self.replicas, mine.get(place, {}), owner)
            if entry:
                state[place] = entry
        first, groups = 0, []
        for group in self.param_groups:
            count = len(group["params"])
            plain = {name: value for name, value in group.items() if name != "params"}
            groups.append({**plain, "params": list(range(first, first + count))})
            first += count
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the state of all parameters, from any number of replicas or from `optimizer_class` itself; each replica
        keeps its own part. Raises `InputError` where the groups do not fit.
        """
        given = [len(group["params"]) for group in state_dict["param_groups"]]
        wanted = [len(group["params"]) for group in self.param_groups]
        if given != wanted:
            raise InputError(
                f"the state is for groups of {given} parameters, and this optimizer has {wanted}",
                do="make the optimizer with the groups that the state was saved with",
            )
        plain = [{k: v for k, v in group.items() if k != "params"} for group in state_dict["param_groups"]]
        for group, values in zip(self.param_groups, plain, strict=True):
            group.update(values)
        given_state = state_dict["state"]
        state = {number: given_state[place] for number, place in enumerate(self._mine) if place in given_state}
        groups, first = [], 0
        for group, values in zip(self.own.param_groups, plain, strict=True):
            count = len(group["params"])
            groups.append({**values, "params": list(range(first, first + count))})
            first += count
        self.own.load_state_dict({"state": state, "param_groups": groups})


def _dealt(sizes: list[int], replicas: int) -> list[int]:
    """The replica of each parameter: the largest first, always to the one that has least."""
    load, owner = [0] * replicas, [0] * len(sizes)
    for place in sorted(range(len(sizes)), key=lambda place: -sizes[place]):
        owner[place] = load.index(min(load))
        load[owner[place]] += sizes[place]
    return owner


def _sent(replicas: Replicas, entry: dict[str, Any], root: int) -> dict[str, Any]:
    """The state of one parameter of one replica, on all of them. Tensors are copied."""
    told = {
        name: {"shape": list(value.shape), "dtype": str(value.dtype).removeprefix("torch.")}
        if isinstance(value, torch.Tensor)
        else {"plain": value}
        for name, value in entry.items()
    }
    told = share_json(replicas.comm, told, root)
    found: dict[str, Any] = {}
    for name, what in told.items():
        if "plain" in what:
            found[name] = entry[name] if replicas.rank == root else what["plain"]
            continue
        tensor = torch.empty(what["shape"], dtype=getattr(torch, what["dtype"]))
        if replicas.rank == root:
            tensor.copy_(entry[name])
        if math.prod(what["shape"]):
            broadcast(as_array(tensor.reshape(-1)).view(np.uint8), replicas.comm, root).wait()
        found[name] = tensor
    return found
