"""The weights of a run: gathered from the ranks, saved to and read from a Hugging Face checkpoint."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from hpckit.apps.train.config import Config
from hpckit.apps.train.hugging_face import Source, from_hugging_face, require_fit, sources
from hpckit.apps.train.models import model_of
from hpckit.apps.train.shape import CONFIG, Shape, hugging_face_config
from hpckit.apps.train.trainer import Trainer
from hpckit.collectives import gather
from hpckit.comm.agree import max_of_ranks
from hpckit.errors import write_error
from hpckit.io.files import replace_file
from hpckit.io.safetensors import SINGLE, Safetensors, stream_safetensors
from hpckit.kernels.nn.narrow.dispatch import widened
from hpckit.nn.cuts import held_parts
from hpckit.nn.layer import Sequential
from hpckit.nn.parameters import Parameter, Parameters

FOLDER = "model"  # in the run's output


def in_turn(trainer: Trainer) -> Iterator[tuple[str, np.ndarray]]:
    """All parameters by name, in the order of the model, one after the other on rank 0; empty arrays elsewhere.

    Collective: all ranks go through all of them. Rank 0 holds one at a time, which may be gone with the next. The ranks
    that have the first copy send theirs; parts of tp are joined on its first rank. In mixed precision they are rounded,
    as the layers use them, and come as float32.
    """
    storage, line, plan = trainer.config.storage, trainer.mesh["pp"], trainer.laid.plan
    every = trainer.laid.model.parameters()
    stage_of: dict[str, tuple[int, list[Parameter]]] = {}  # its parts, in the last of our stages that has it
    for stage in plan.stages_of(line.rank):
        for number in plan.partition.layers(stage):
            for name, parts in by_origin(trainer.model.layers[number].parameters()).items():
                stage_of[name] = stage, parts
    saved = {parameter.name for parameter in trainer.saved} if not trainer.pipeline.replicas.rank else set()
    own = {
        name
        for name, (_, parts) in stage_of.items()
        if (trainer.pipeline.has_first_experts if _are_dealt(trainer, parts[0]) else parts[0].name in saved)
    }
    sends = not (trainer.pipeline.replicas.rank or trainer.pipeline.tensor.rank)
    holders = [0] * len(every)
    if sends:
        ours = np.array([line.rank if parameter.name in own else -1 for parameter in every])
        holders = max_of_ranks(line, ours).tolist()
    dtype, here = np.uint16 if storage else trainer.config.precision, -1
    for parameter, holder in zip(every, holders, strict=True):
        values = np.empty(0, dtype)
        if parameter.name in stage_of:
            stage, parts = stage_of[parameter.name]
            if stage != here:
                trainer.pipeline.need(stage)
                here = stage
            if parameter.name in own:
                found = (_joined_experts if _are_dealt(trainer, parts[0]) else _joined)(trainer, parts)
                values = np.ascontiguousarray(found).reshape(-1) if holder == line.rank else values
        if sends and holder:
            counts = np.where(np.arange(line.size) == holder, parameter.size, 0)
            came = gather(values, line, counts=counts).wait()
            values = values[:0] if came is None else came
        if line.rank or not sends:
            yield parameter.name, np.empty(0, dtype)
        else:
            whole = values.reshape(parameter.shape)
            yield parameter.name, widened(whole, storage) if storage else whole


def gathered(trainer: Trainer) -> dict[str, np.ndarray] | None:
    """All of `in_turn` at once on rank 0; None elsewhere. Collective."""
    every = {name: value.copy() for name, value in in_turn(trainer)}
    return None if trainer.mesh.rank else every


def _are_dealt(trainer: Trainer, part: Parameter) -> bool:
    """Whether it is a part of experts that are on several ranks."""
    return bool(part.experts) and trainer.laid.plan.ep * trainer.laid.plan.etp > 1


def by_origin(parameters: Iterable[Parameter]) -> dict[str, list[Parameter]]:
    """Parameters, or their parts, by the name of the whole."""
    found: dict[str, list[Parameter]] = {}
    for parameter in parameters:
        found.setdefault(parameter.origin, []).append(parameter)
    return found


def _joined(trainer: Trainer, held: Sequence[Parameter]) -> np.ndarray:
    """The whole of a parameter on the first rank of its group of tp, something else on the others. Collective."""
    cut, ranks, storage = held[0].cut, trainer.pipeline.tensor, trainer.config.storage
    values = [trainer.device.to_host(part.stored if storage else part.value) for part in held]
    if cut is None:
        return values[0]
    flat = np.concatenate([value.reshape(-1) for value in values])
    sizes = [cut.size(part) for part in range(ranks.parts)]
    counts = [sum(sizes[part] for part in own) for own in held_parts(ranks.parts, ranks.size)]
    every = gather(flat, ranks.comm, counts=counts).wait()
    if every is None:
        return values[0]
    pieces = np.split(every, np.cumsum(sizes)[:-1])
    return cut.join([piece.reshape(cut.shape(part)) for part, piece in enumerate(pieces)])


def _joined_experts(trainer: Trainer, held: Sequence[Parameter]) -> np.ndarray:
    """All experts on the first rank of their line, something else on the others. Collective."""
    part = held[0]
    values = trainer.device.to_host(part.stored if trainer.config.storage else part.value)
    assert part.cut is not None
    counts = [part.cut.size(rank) for rank in range(trainer.laid.plan.ep * trainer.laid.plan.etp)]
    every = gather(np.ascontiguousarray(values).reshape(-1), trainer.pipeline.expert_line, counts=counts).wait()
    if every is None:
        return values
    pieces = np.split(every, np.cumsum(counts)[:-1])
    return part.cut.join([piece.reshape(part.cut.shape(rank)) for rank, piece in enumerate(pieces)])


def read(folder: Path, shape: Shape, config: Config) -> Sequential:
    """The language model that `save` wrote, with all of its numbers, on the host of one rank."""
    model, tensors = model_of(shape), Safetensors(folder)
    held = Parameters(model.parameters(), np.dtype(config.arithmetic))
    for parameter in held.list:
        parameter.value[...] = from_hugging_face(shape, tensors, parameter.name)
    return model


def save(trainer: Trainer, folder: Path) -> None:
    """Rank 0 writes `model.safetensors`; of a language model as transformers opens it, with its config.json and
    tokenizer. Collective: numbers are written as they come, so that no rank holds more than one parameter of others.

    Raises `SetupError` on rank 0 where it cannot be written.
    """
    every = in_turn(trainer)
    problem = None
    if not trainer.mesh.rank:
        try:
            folder.mkdir(exist_ok=True)
            model = trainer.laid.model.parameters()
            write(trainer.config, trainer.laid.shape, model, every, folder)
        except OSError as found:
            problem = found
    for _ in every:  # what is not written comes, too: the other ranks send it
        pass
    if problem is not None:
        raise write_error(problem, folder) from problem


def write(
    config: Config,
    shape: Shape,
    parameters: Sequence[Parameter],
    every: Iterator[tuple[str, np.ndarray]],
    folder: Path,
) -> None:
    """Write the values that come in the order of the model's `parameters`, each with its name."""
    tensors = {p.name: Source(p.name, p.shape) for p in parameters}
    if shape.is_language:
        tensors = sources(shape, parameters)
    name, value = "", np.empty(0)

    def rows(theirs: str, first: int, count: int) -> np.ndarray:
        nonlocal name, value
        source = tensors[theirs]
        while name != source.ours:
            name, value = next(every)
        return source.rows(value[tuple(slice(a, a + n) for a, n in zip(*source.box(first, count), strict=True))])

    precision = config.storage or config.precision
    shapes = {theirs: source.shape for theirs, source in tensors.items()}
    stream_safetensors(folder / SINGLE, shapes, rows, precision, {"format": "pt"} if shape.is_language else None)
    if shape.is_language:
        replace_file(folder / CONFIG, json.dumps(hugging_face_config(shape, config.precision), indent=2).encode())
        if config.data.tokenizer is not None:
            shutil.copyfile(config.data.tokenizer, folder / "tokenizer.json")


def load(trainer: Trainer, path: Path) -> None:
    """Set this rank's parameters to those of a checkpoint. Raises `InputError` for tensors that miss or do not fit."""
    tensors, held = Safetensors(path), trainer.pipeline.parameters.list
    require_fit(trainer.laid.shape, tensors, held)
    for parameter in held:
        value = from_hugging_face(trainer.laid.shape, tensors, parameter.origin)
        trainer.pipeline.parameters.set_value(parameter, parameter.own(value))
    trainer.pipeline.parameters.updated()
