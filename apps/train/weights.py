"""The weights of a run: gathered from the ranks, saved to and read from a Hugging Face checkpoint."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from hpckit.apps.train.config import Config
from hpckit.apps.train.hugging_face import from_hugging_face, require_fit, to_hugging_face
from hpckit.apps.train.models import model_of
from hpckit.apps.train.shape import CONFIG, Shape, hugging_face_config
from hpckit.apps.train.trainer import Trainer
from hpckit.collectives import gather
from hpckit.comm.agree import max_of_ranks
from hpckit.errors import write_error
from hpckit.io.files import replace_file
from hpckit.io.safetensors import SINGLE, Safetensors, save_safetensors
from hpckit.kernels.nn.narrow.dispatch import widened
from hpckit.nn.cuts import held_parts
from hpckit.nn.layer import Sequential
from hpckit.nn.parameters import Parameter, Parameters

FOLDER = "model"  # in the run's output


def gathered(trainer: Trainer) -> dict[str, np.ndarray] | None:
    """All parameters by name, in the order of the model, on rank 0; None elsewhere. Collective.

    The ranks that have the first copy send theirs; parts of tp are joined on its first rank. In mixed precision they
    are rounded, as the layers use them, and come as float32.
    """
    storage = trainer.config.storage
    line, own, plan = trainer.mesh["pp"], dict[str, np.ndarray](), trainer.laid.plan
    saved = {parameter.name for parameter in trainer.saved}
    for stage in plan.stages_of(line.rank):
        trainer.pipeline.need(stage)
        for number in plan.partition.layers(stage):
            for name, parts in by_origin(trainer.model.layers[number].parameters()).items():
                if parts[0].experts and plan.ep > 1:
                    if trainer.pipeline.has_first_experts:
                        own[name] = _joined_experts(trainer, parts[0])
                elif parts[0].name in saved and not trainer.pipeline.replicas.rank:
                    held = [trainer.device.to_host(part.stored if storage else part.value) for part in parts]
                    value = _joined(trainer, parts[0], held)
                    own[name] = value.copy() if trainer.pipeline.shards.gathers else value
    if trainer.pipeline.replicas.rank or trainer.pipeline.tensor.rank:
        return None
    every = trainer.laid.model.parameters()
    holders = max_of_ranks(line, np.array([line.rank if parameter.name in own else -1 for parameter in every]))
    found: dict[str, np.ndarray] = {}
    for parameter, holder in zip(every, holders.tolist(), strict=True):
        values = np.empty(0, np.uint16 if storage else trainer.config.precision)
        if holder == line.rank:
            values = np.ascontiguousarray(own[parameter.name]).reshape(-1)
        if holder == 0:
            if line.rank == 0:
                found[parameter.name] = values.reshape(parameter.shape)
            continue
        counts = np.where(np.arange(line.size) == holder, parameter.size, 0)
        values = gather(values, line, counts=counts).wait()
        if values is not None:
            found[parameter.name] = values.reshape(parameter.shape)
    if line.rank:
        return None
    return {name: widened(bits, storage) for name, bits in found.items()} if storage else found


def by_origin(parameters: Iterable[Parameter]) -> dict[str, list[Parameter]]:
    """Parameters, or their parts, by the name of the whole."""
    found: dict[str, list[Parameter]] = {}
    for parameter in parameters:
        found.setdefault(parameter.origin, []).append(parameter)
    return found


def _joined(trainer: Trainer, first: Parameter, values: Sequence[np.ndarray]) -> np.ndarray:
    """The whole of a parameter on the first rank of its group of tp, something else on the others. Collective."""
    cut, ranks = first.cut, trainer.pipeline.tensor
    if cut is None:
        return values[0]
    flat = np.concatenate([value.reshape(-1) for value in values])
    sizes = [cut.size(part) for part in range(ranks.parts)]
    counts = [sum(sizes[part] for part in held) for held in held_parts(ranks.parts, ranks.size)]
    every = gather(flat, ranks.comm, counts=counts).wait()
    if every is None:
        return values[0]
    pieces = np.split(every, np.cumsum(sizes)[:-1])
    return cut.join([piece.reshape(cut.shape(part)) for part, piece in enumerate(pieces)])


def _joined_experts(trainer: Trainer, part: Parameter) -> np.ndarray:
    """All experts on the first rank of their line, something else on the others. Collective."""
    values = trainer.device.to_host(part.stored if trainer.config.storage else part.value)
    assert part.cut is not None
    counts = [part.cut.size(rank) for rank in range(trainer.laid.plan.ep)]
    every = gather(np.ascontiguousarray(values).reshape(-1), trainer.pipeline.expert_line, counts=counts).wait()
    return values if every is None else every.reshape(part.whole)


def whole(trainer: Trainer, weights: dict[str, np.ndarray]) -> Sequential:
    """The network with all of its numbers, on the host of one rank."""
    model = model_of(trainer.laid.shape)
    held = Parameters(model.parameters(), np.dtype(trainer.config.arithmetic))
    for parameter in held.list:
        parameter.value[...] = weights[parameter.name]
    return model


def save(weights: dict[str, np.ndarray], shape: Shape, config: Config, folder: Path) -> None:
    """Write `model.safetensors`; of a language model as transformers opens it, with its config.json and tokenizer.

    Raises `SetupError` where it cannot be written.
    """
    try:
        folder.mkdir(exist_ok=True)
        if not shape.is_language:
            save_safetensors(folder / SINGLE, weights, storage=config.storage)
            return
        tensors = to_hugging_face(shape, weights)
        save_safetensors(folder / SINGLE, tensors, {"format": "pt"}, storage=config.storage)
        replace_file(folder / CONFIG, json.dumps(hugging_face_config(shape, config.precision), indent=2).encode())
        if config.data.tokenizer is not None:
            shutil.copyfile(config.data.tokenizer, folder / "tokenizer.json")
    except OSError as problem:
        raise write_error(problem, folder) from problem


def load(trainer: Trainer, path: Path) -> None:
    """Set this rank's parameters to those of a checkpoint. Raises `InputError` for tensors that miss or do not fit."""
    tensors, held = Safetensors(path), trainer.pipeline.parameters.list
    require_fit(trainer.laid.shape, tensors, held)
    for parameter in held:
        value = from_hugging_face(trainer.laid.shape, tensors, parameter.origin)
        trainer.pipeline.parameters.set_value(parameter, parameter.own(value))
    trainer.pipeline.parameters.updated()
