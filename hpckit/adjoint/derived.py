"""Derivatives of models: forward (tangents), backward (sensitivities), and the gradient of a cost."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from hpckit.adjoint.models import TracedModel, plain, require_model
from hpckit.adjoint.program.execute import require_places
from hpckit.adjoint.program.stages import Graph, placed
from hpckit.adjoint.transforms import linear, sensitivities, tangents
from hpckit.errors import InputError
from hpckit.grid.field import Field
from hpckit.kernels.graph.nodes import OUTSIDE, Node, constant, faces_at, hold, make

__communicates__ = True  # its frames are not call sites


def jvp(step: TracedModel, args: Sequence[Any], changes: Sequence[Any], **options: Any) -> tuple[Any, Any]:
    """The results of a model, and how they change with its arguments: the tangent-linear model. Collective.

    changes: of each argument a Field, a number, or None for no change.
    """
    require_model(step, "the step of jvp")
    if not isinstance(args, tuple | list):
        raise InputError(f"jvp takes the arguments of {step.name} as a tuple, not as {type(args).__name__}")
    graph, several = step._traced(args, options)
    _require_alike(step.name, "changes", changes, [node.is_field for node in graph.inputs], "arguments")
    derived = jvp_graph(graph, tuple(change is not None for change in changes))
    given = [change for change in changes if change is not None]
    _require_placed(f"the change of an argument of {step.name}", changes, graph.inputs)
    bound = step.bound(derived, args)
    found = bound.run(_inputs(derived, [*args, *given]), [None] * len(derived.outputs))
    half = len(graph.outputs)
    return (tuple(found[:half]), tuple(found[half:])) if several else (found[0], found[half])


def vjp(step: TracedModel, *args: Any, **options: Any) -> tuple[Any, Callable[..., tuple]]:
    """The results of a model, and the function that takes sensitivities back from its results to its arguments.

    The function takes a Field, a number, or None for 0, for each result and returns one for each argument: sum over
    results and cells of sensitivity times slope. All calls are collective.
    """
    require_model(step, "the step of vjp")
    graph, several = step._traced(args, options)
    found = step.bound(graph, args).run(_inputs(graph, args), [None] * len(graph.outputs))

    def pull(*seeds: Any) -> tuple:
        derived = vjp_graph(graph)
        _require_alike(step.name, "sensitivities", seeds, [node.is_field for node in graph.outputs], "results")
        bound = step.bound(derived, args)
        fields = [each if isinstance(each, Field) else None for each in seeds]
        require_places(fields, graph.faces, f"the result of {step.name}")
        given = [
            each if each is not None else bound.zeros(faces=faces) if node.is_field else 0.0
            for node, faces, each in zip(graph.outputs, graph.faces, seeds, strict=True)
        ]
        return tuple(bound.run(_inputs(derived, [*args, *given]), [None] * len(derived.outputs)))

    return (tuple(found) if several else found[0]), pull


def gradient(cost: Any, **options: Any) -> Callable[..., tuple[Any, tuple]]:
    """The function that returns a cost's value and its gradient in each argument. Collective. Of an ensemble the value,
    and the slope in a number, are float64[members].

    cost: a model with one result, a sum; or an object with a method `gradient`, as a `Window`.
    """
    if "argnums" in options:
        raise InputError(
            "gradient takes no argnums: it gives the slopes in all arguments, in their order",
            do="take those you need: value, (du, dv) = hp.gradient(cost)(u, v)",
        )
    if not isinstance(cost, TracedModel) and hasattr(cost, "gradient"):
        return cost.gradient
    require_model(cost, "a cost")

    def value_and_gradient(*args: Any) -> tuple[Any, tuple]:
        graph, _ = cost._traced(args, options)
        if len(graph.outputs) != 1 or graph.outputs[0].is_field:
            raise InputError(
                f"{cost.name} has no gradient: it does not return one number",
                do="return a sum, as (u * u).sum(), or use vjp",
            )
        derived = vjp_graph(graph, with_results=True)
        found = cost.bound(derived, args).run(_inputs(derived, [*args, 1.0]), [None] * len(derived.outputs))
        return found[0], tuple(found[1:])

    return value_and_gradient


@functools.lru_cache(128)
def jvp_graph(graph: Graph, moving: tuple[bool, ...]) -> Graph:
    """The graph of results and their changes; its arguments are the model's, then the changes of those that move."""
    changes = {
        node: make(
            node.op,
            value=(f"change of {node.value[0]}", linear(node.value[1]), node.value[2])
            if node.op == "field"
            else f"change of {node.value}",
            is_field=node.is_field,
        )
        for node, moves in zip(graph.inputs, moving, strict=True)
        if moves
    }
    faces = (*graph.faces, *graph.faces)
    return replace(
        graph,
        name=f"{graph.name}, tangent",
        inputs=(*graph.inputs, *changes.values()),
        outputs=placed((*graph.outputs, *tangents(graph.outputs, changes)), faces, graph.grid),
        faces=faces,
        joins=False,
    )


@functools.lru_cache(128)
def vjp_graph(graph: Graph, with_results: bool = False, wanted: int | None = None) -> Graph:
    """The graph of the sensitivities to all arguments, or the first `wanted`, after the results if those are asked for;
    its arguments are the model's, then the sensitivities to the results.
    """
    seeds = [
        make("field", value=(f"sensitivity {k}", graph.grid.walls(OUTSIDE), faces))
        if node.is_field
        else make("number", value=f"sensitivity {k}", is_field=False)
        for k, (node, faces) in enumerate(zip(graph.outputs, graph.faces, strict=True))
    ]
    asked = graph.inputs[:wanted]
    found = sensitivities(graph.outputs, seeds, asked, graph.grid, graph.faces)
    results: list[Node] = []
    for leaf, node in zip(asked, found, strict=True):
        if node is None:
            node = constant(0.0) if leaf.op != "network" else make("mul", constant(0.0), leaf)
        results.append(hold(node, graph.grid.walls(OUTSIDE), faces_at(leaf)) if leaf.is_field > node.is_field else node)
    before, places = (graph.outputs, graph.faces) if with_results else ((), ())
    places = (*places, *(faces_at(leaf) if leaf.is_field else graph.grid.centers for leaf in asked))
    return replace(
        graph,
        name=f"{graph.name}, adjoint",
        inputs=(*graph.inputs, *seeds),
        outputs=placed((*before, *results), places, graph.grid),
        faces=places,
        backward=True,
        joins=False,
    )


def _require_alike(name: str, what: str, given: Sequence[Any], fields: Sequence[bool], whose: str) -> None:
    """`InputError` unless there is a Field for each field, and something else or None for each of the others."""
    if not isinstance(given, tuple | list) or len(given) != len(fields):
        count = len(given) if isinstance(given, tuple | list) else type(given).__name__
        raise InputError(f"{name} has {len(fields)} {whose}, and got {count} {what}", do="give a tuple, one for each")
    for number, (each, is_field) in enumerate(zip(given, fields, strict=True)):
        if each is not None and isinstance(each, Field) != is_field:
            wanted = "a Field" if is_field else "no Field"
            raise InputError(f"of the {what} of {name} number {number} is {type(each).__name__}, it should be {wanted}")


def _require_placed(what: str, given: Sequence[Any], leaves: Sequence[Node]) -> None:
    """`InputError` unless fields stand where leaves do."""
    pairs = [(each, leaf) for each, leaf in zip(given, leaves, strict=True) if isinstance(each, Field)]
    require_places([each for each, _ in pairs], [faces_at(leaf) for _, leaf in pairs], what)


def _inputs(graph: Graph, values: Sequence[Any]) -> dict[Node, Any]:
    return dict(zip(graph.inputs, map(plain, values), strict=True))
