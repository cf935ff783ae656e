"""Text generation with language models: the engine, the choice of tokens, and steps as plans."""

from hpckit import loaded_on_use

_HOMES = {
    "Completion": "hpckit.serving.events",
    "Engine": "hpckit.serving.engine",
    "Event": "hpckit.serving.events",
    "TextPiece": "hpckit.serving.step",
    "Places": "hpckit.serving.plan.places",
    "StepReplay": "hpckit.serving.step",
    "Sampling": "hpckit.serving.sampler",
    "ServingPlan": "hpckit.serving.plan.plan",
    "ServingStep": "hpckit.serving.step",
}
__all__ = list(_HOMES)
__getattr__, __dir__ = loaded_on_use(__name__, _HOMES)
