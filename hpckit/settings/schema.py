"""Questions to the JSON schema of an app's settings: which keys there are, what each may be, and the nearest name."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from pydantic import BaseModel

from hpckit.errors import nearest
from hpckit.io.settings import INPUT_FILE_FORMAT

Node = dict[str, Any]

TYPE_WORDS = {
    "integer": "a whole number",
    "number": "a number",
    "string": "a text",
    "boolean": "true or false",
    "array": "a list",
    "object": "a table",
}
BOUNDS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "above {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "below {}",
    "multipleOf": "a multiple of {}",
    "minLength": "of at least {} characters",
    "maxLength": "of at most {} characters",
    "minItems": "at least {} entries",
    "maxItems": "at most {} entries",
    "pattern": "of the form {}",
}
# Names of LAMMPS, GROMACS, i-PI, PyTorch, WRF and their kin -> ours, for keys and for their values.
ELSEWHERE = {
    "nvt": ("nose_hoover", "bussi", "langevin"),
    "nose": ("nose_hoover",),
    **dict.fromkeys(("csvr", "svr", "v_rescale", "temp/csvr"), ("bussi",)),
    **dict.fromkeys(("sd", "bd", "langevin_dynamics"), ("langevin",)),
    **dict.fromkeys(("minimize", "minimization", "cg", "steep"), ("fire",)),
    **dict.fromkeys(("lj", "lj/cut", "lj126"), ("lennard_jones",)),
    "buck": ("buckingham",),
    **dict.fromkeys(("timestep", "time_step", "delta_t", "deltat"), ("dt",)),
    **dict.fromkeys(("temp", "tstart"), ("temperature",)),
    **dict.fromkeys(("tau", "tau_t", "tdamp", "damp", "friction", "gamma"), ("damping",)),
    **dict.fromkeys(("thermostat", "integrator", "ensemble"), ("kind",)),
    **dict.fromkeys(("nsteps", "nstep", "niter", "max_steps", "iterations", "run"), ("steps",)),
    **dict.fromkeys(("t_end", "tend", "tmax", "t_max", "stop_time", "duration"), ("end",)),
    **dict.fromkeys(("rc", "r_cut", "rcut", "cut"), ("cutoff",)),
    **dict.fromkeys(("rho", "number_density"), ("density",)),
    **dict.fromkeys(("lr", "learning_rate", "rate", "eta"), ("lr",)),
    **dict.fromkeys(("batch_size", "bs", "global_batch_size"), ("batch",)),
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "embed_dim"), ("width",)),
    **dict.fromkeys(("n_layer", "n_layers", "num_layers", "depth"), ("layers",)),
    **dict.fromkeys(("n_head", "n_heads", "num_heads"), ("heads",)),
    **dict.fromkeys(("wd", "weight_decay"), ("decay", "weight_decay")),
    **dict.fromkeys(("block_size", "seq_len", "context_length", "sequence_length"), ("context", "length", "window")),
}


class Schema:
    """The schema of one `Config`."""

    def __init__(self, config: type[BaseModel]) -> None:
        self.root = _json_schema(config)

    def alternatives(self, node: Node) -> list[Node]:
        """What `node` may be, with references and unions written out; "null" left out."""
        if "$ref" in node:
            return self.alternatives(self.root["$defs"][node["$ref"].rsplit("/", 1)[1]])
        for union in ("anyOf", "oneOf", "allOf"):
            if union in node:
                return [choice for part in node[union] for choice in self.alternatives(part)]
        return [] if node.get("type") == "null" else [node]

    def at(self, path: Iterable[str | int]) -> list[Node]:
        """The alternatives at `path`; empty where the schema has no such key."""
        nodes = self.alternatives(self.root)
        for part in path:
            if isinstance(part, int):
                inner = [entry for node in nodes for entry in _entries(node, part)]
            else:
                inner = [node["properties"][part] for node in nodes if part in node.get("properties", {})]
            nodes = [choice for node in inner for choice in self.alternatives(node)]
        return nodes

    def keys(self, path: Iterable[str | int] = ()) -> list[str]:
        """The names below `path`."""
        return list(dict.fromkeys(name for node in self.at(path) for name in node.get("properties", {})))

    def leaves(self, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
        """The paths of all keys but tables, in the order of the schema."""
        for name in self.keys(path):
            below = (*path, name)
            if self.keys(below):
                yield from self.leaves(below)
            else:
                yield below

    def allowed(self, path: Iterable[str | int]) -> str:
        """What the value at `path` may be, in words."""
        return " or ".join(dict.fromkeys(self._words(node) for node in self.at(path)))

    def description(self, path: tuple[str, ...]) -> str:
        """The description of the key at `path`."""
        for node in self.at(path[:-1]):
            field = node.get("properties", {}).get(path[-1], {})
            if "description" in field:
                return " ".join(field["description"].split())
        return next((" ".join(node["description"].split()) for node in self.at(path) if "description" in node), "")

    def is_text(self, path: Iterable[str | int]) -> bool:
        """Only a text may stand at `path`: no quotes needed on the command line."""
        nodes = self.at(path)
        return bool(nodes) and all(node.get("type") == "string" for node in nodes)

    def is_input_file(self, path: Iterable[str | int]) -> bool:
        """The value at `path` names a file to read."""
        return any(node.get("format") == INPUT_FILE_FORMAT for node in self.at(path))

    def nearest(self, path: tuple[str | int, ...]) -> str:
        """The known key that is nearest to the unknown one at `path`: a sibling, else the same name elsewhere."""
        *parents, last = path
        if meant := known_as(str(last), self.keys(parents)):
            return dotted((*parents, meant[0]))
        if near := nearest(last, self.keys(parents)):
            return dotted((*parents, near))
        leaves = {leaf[-1]: leaf for leaf in reversed(list(self.leaves()))}
        if meant := known_as(str(last), leaves):
            return dotted(leaves[meant[0]])
        near = nearest(last, leaves, cutoff=0.8)
        return dotted(leaves[near]) if near else ""

    def _words(self, node: Node) -> str:
        """One alternative in words: `a whole number, at least 1`."""
        if "const" in node:
            return repr_toml(node["const"])
        if "enum" in node:
            return ", ".join(repr_toml(value) for value in node["enum"])
        kind = TYPE_WORDS.get(node.get("type", ""), "a value")
        if node.get("format") == INPUT_FILE_FORMAT:
            kind = "a file to read"
        if "prefixItems" in node:
            kinds = [self._kind(entry) for entry in node["prefixItems"]]
            return f"a list of {len(kinds)} {kinds[0]}s" if len(set(kinds)) == 1 else f"a list: {', '.join(kinds)}"
        if "items" in node:
            kind = f"a list of {self._kind(node['items'])}s"
            if names := [name for entry in self.alternatives(node["items"]) for name in entry.get("properties", {})]:
                kind += f" {{{', '.join(names)}}}"
        said = [text.format(node[bound]) for bound, text in BOUNDS.items() if bound in node]
        if {"minItems", "maxItems"} <= set(node):
            said[-2:] = [f"{node['minItems']} to {node['maxItems']} entries"]
        return ", ".join([kind, *said])

    def _kind(self, node: Node) -> str:
        """The type of an entry of a list, without its article."""
        kinds = {TYPE_WORDS.get(choice.get("type", ""), "value") for choice in self.alternatives(node)}
        return kinds.pop().removeprefix("a ") if len(kinds) == 1 else "value"


@cache
def _json_schema(config: type[BaseModel]) -> Node:
    return config.model_json_schema()


def known_as(name: str, known: Iterable[str]) -> list[str]:
    """What other programs call `name`, among our names; [] where none is that."""
    names = set(known)
    return [ours for ours in ELSEWHERE.get(name.lower().replace("-", "_"), ()) if ours in names]


def dotted(path: Iterable[str | int]) -> str:
    """`("grid", "nx")` as `grid.nx`."""
    return ".".join(str(part) for part in path)


def _entries(node: Node, index: int) -> list[Node]:
    """What the entry `index` of a list may be."""
    fixed = node.get("prefixItems", [])
    if index < len(fixed):
        return [fixed[index]]
    return [node["items"]] if "items" in node else []


def repr_toml(value: Any) -> str:
    """`value` as TOML writes it on one line; a table leaves out what is None, for which TOML has no word."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, dict):
        said = {key: item for key, item in value.items() if item is not None}
        return "{" + ", ".join(f"{key} = {repr_toml(item)}" for key, item in said.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(repr_toml(item) for item in value) + "]"
    return json.dumps(str(value), ensure_ascii=False)
