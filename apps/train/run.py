"""The run of the training app: steps, metrics, validation, weights, a sample text."""

from __future__ import annotations

import math
import resource
import time as clock
from functools import partial
from typing import Any

import numpy as np

from hpckit.apps.common.loop import Due, Evolution, time_loop
from hpckit.apps.train import weights
from hpckit.apps.train.config import Config
from hpckit.apps.train.data import ANSWERS, Images
from hpckit.apps.train.layout import TrainingSetup, describe, layout, memory_per_rank
from hpckit.apps.train.output.evaluation import Evaluation, answers_record, evaluate
from hpckit.apps.train.output.figures import TrainingFigures
from hpckit.apps.train.output.timeline import TIMELINE, record_of
from hpckit.apps.train.trainer import StepFigures, Trainer, balanced
from hpckit.comm.agree import all_of_ranks
from hpckit.comm.mesh import Mesh
from hpckit.io.checkpoint.state import Restored, State
from hpckit.kernels.nn.memory import owned_bytes
from hpckit.nn.gpt import continued
from hpckit.report.units import number, percent, scaled
from hpckit.run.context import Run

SAMPLE = "sample.txt"
TITLES = {  # of metrics, for the report
    "grad_norm": "norm of the gradient",
    "loss_scale": "factor of the loss (float16)",
    "lr": "learning rate",
    "mfu": "MFU: model operations over the peak",
    "communication": "communication, share of a step",
    "bubble": "bubble, share of the pipeline's time",
    "skipped": "steps skipped for an overflow",
    "tokens": "tokens seen",
    "tokens_per_second": "tokens per second",
    "samples_per_second": "samples per second",
}


class Training(Evolution):
    """A network in its run: `time` counts steps."""

    waits_in = ""

    def __init__(self, config: Config, run: Run, trainer: Trainer) -> None:
        super().__init__(run)
        self.config, self.trainer, self.figures = config, trainer, TrainingFigures(trainer)
        self.end = config.time.steps
        self.validated: Evaluation | None = None  # the last time
        self.done = StepFigures(0, math.nan, math.nan, 0.0, 0, 0, 0.0)
        self.seconds = 0.0  # of the last step

    @property
    def is_over(self) -> bool:
        """All steps are done."""
        return self.step >= self.config.time.steps

    def begin(self) -> None:
        """Take up the weights that the settings name."""
        if self.config.model.weights is not None:
            weights.load(self.trainer, self.config.model.weights)

    def restore(self, kept: Restored) -> None:
        """Continue from a checkpoint."""
        self.trainer.restore(kept)
        self.step = self.trainer.done
        self.time = self.step

    def saved(self) -> State:
        """Collective: the content of a checkpoint."""
        return self.trainer.state()

    def advance(self) -> Due:
        """Collective: do the next step."""
        trainer, times, begin = self.trainer, self.config.time, clock.perf_counter()
        once = partial(trainer.step, self.run.timer)
        self.done = self.run.advance(self.step + 1, once, trainer.held, trainer.restore)
        self.seconds, self.step = clock.perf_counter() - begin, self.done.step
        self.time = self.step
        return Due(self.is_over or self.step % times.monitor == 0 or self._is_validated())

    def _is_validated(self) -> bool:
        every = self.config.time.validate_every
        return self.is_over or bool(every and self.step % every == 0)

    def look(self) -> None:
        """Collective: the figures of the step, and the validation where one is due."""
        line: dict[str, float] = {}
        if self.is_over or self.step % self.config.time.monitor == 0:
            with self.run.timer("diagnostics"):
                line = self.figures.of(self.done, self.seconds)
        if self._is_validated():
            with self.run.timer("validation"):
                self.validated = found = _validate(self.config, self.run, self.trainer, self.done)
            line |= {"validation_loss": found.loss, "validation_accuracy": found.accuracy}
        self.run.metric(step=self.step, time=self.step, **line)

    def rate(self, steps: int, seconds: float) -> str:
        """Loss and speed of the last step."""
        unit = "tokens" if self.config.model.is_language else "images"
        count = self.done.samples * self.trainer.laid.window
        return f"loss {self.done.loss:.4f}  {count / self.seconds:.4g} {unit}/s"

    def close(self) -> None:
        """Divide the time of computing from that of waiting."""
        self.figures.split(self.run.timer)


def run(config: Config, run: Run) -> None:
    """Do the run on all ranks of `run.comm`.

    Raises `InputError` for contradictory settings, `BlowUpError` if the loss is not finite.
    """
    begin = clock.perf_counter()
    laid = layout(config, run.size)
    with Mesh(run.comm, **laid.mesh) as mesh:
        with run.compiling():
            laid = balanced(config, laid, mesh.comm, run.device)
            trainer = Trainer(config, laid, mesh, run.device)
            trainer.warm_up()
        for line in describe(laid):
            run.say(line)
        run.say(f"ready in {clock.perf_counter() - begin:.1f} s")
        it = Training(config, run, trainer)
        looping = clock.perf_counter()
        ran = time_loop(it)
        last = it.validated
        text = _finish(config, run, trainer) if ran.complete else ""
        run.finish(
            {
                "steps": it.step,
                "wall_seconds": clock.perf_counter() - looping,  # with the weights and the text, which are phases too
                "samples": trainer.sampler.position,
                **({"tokens": trainer.sampler.position * laid.window} if laid.shape.is_language else {}),
                "parameters": sum(parameter.size for parameter in laid.model.parameters()),
                "units": {"time": "steps", "loss": "nats", "validation_loss": "nats"},
                "titles": TITLES,
                "headline": _headline(it, laid),
                "mesh": laid.mesh,
                "memory": memory_of(trainer),
                **it.figures.summary(),
                **(_validated(config, run, laid, last) if last else {}),
                **({"text": text} if text else {}),
            },
            status="done" if ran.complete else "stopped",
        )


def _headline(it: Training, laid: TrainingSetup) -> dict[str, str]:
    """What a reader of the report wants first: name -> value as text."""
    found: dict[str, str] = {}
    if it.validated is not None:
        found["validation loss (nats)"] = number(it.validated.loss)
        if not laid.shape.is_language:
            found["accuracy"] = percent(it.validated.accuracy)
    if it.done.step:
        found["training loss (nats)"] = number(it.done.loss)
    seen = it.trainer.sampler.position * laid.window
    found["tokens" if laid.shape.is_language else "images"] = scaled(seen, "")
    return found | {"parameters": scaled(sum(parameter.size for parameter in laid.model.parameters()), "")}


def _validate(config: Config, run: Run, trainer: Trainer, step: StepFigures) -> Evaluation:
    """Collective: loss and accuracy on the validation samples, always the same ones."""
    found = evaluate(trainer, trainer.laid.data.validation, config.time.validate_samples)
    run.say(f"step {step.step}: loss {step.loss:.4f}; validation: {_result(config, found)}")
    return found


def _validated(config: Config, run: Run, laid: TrainingSetup, last: Evaluation) -> dict[str, Any]:
    """The last validation, for the summary; rank 0 writes a classifier's confusion matrix and its mistakes."""
    data = laid.data.validation
    if isinstance(data, Images) and last.answers is not None and run.rank == 0:
        run.directory.write_json(f"output/{ANSWERS}", answers_record(data, last.answers, laid.data.classes))
    figures = {"loss": last.loss, "accuracy": last.accuracy, "samples": last.samples}
    return {"validation": figures, "result": f"Validation: {_result(config, last)}."}


def _result(config: Config, found: Evaluation) -> str:
    told = f"accuracy {found.accuracy:.2%}"
    if config.model.is_language:
        told = f"perplexity {math.exp(min(found.loss, 700.0)):.4g}"
    return f"loss {found.loss:.4f} on {found.samples} samples, {told}"


def _finish(config: Config, run: Run, trainer: Trainer) -> str:
    """Save the weights, and write the sample text; returns it."""
    laid, text = trainer.laid, ""
    with run.timer("output"):
        measured = trainer.pipeline.measured()
        weights.save(trainer, run.directory.output / weights.FOLDER)
        if run.rank == 0:
            run.directory.write_json(f"output/{TIMELINE}", record_of(measured))
    if run.rank or laid.data.tokenizer is None or config.sample.tokens == 0:
        return text
    with run.timer("sample"):
        tokenizer, settings = laid.data.tokenizer, config.sample
        model = weights.read(run.directory.output / weights.FOLDER, laid.shape, config)
        tokens = continued(
            model,
            tokenizer.encode(settings.prompt),
            settings.tokens,
            context=laid.shape.context,
            vocab=tokenizer.vocab,
            temperature=settings.temperature,
            top_k=settings.top_k,
            seed=config.seed,
        )
        text = tokenizer.decode(tokens.tolist())
        run.directory.write_text(f"output/{SAMPLE}", text)
        run.say(f"it writes:\n{text}")
    return text


def memory_of(trainer: Trainer) -> dict[str, Any]:
    """Bytes on every rank, in their order: parameters, gradients and optimizer (with the master values of mixed
    precision) as allocated, of what a node holds once
    this rank's part; activations as weighed in a step, and as foreseen; work arrays of all kinds; and the most that
    the process had resident. Collective.
    """
    state = sum(array.nbytes for array in trainer.optimizer.state().values() if array.ndim)
    foreseen = memory_per_rank(trainer.config, trainer.laid)["activations"][trainer.mesh["pp"].rank]
    held = trainer.pipeline.shards.memory()
    own = {
        "parameters": held["parameters"],
        "gradients": held["gradients"],
        "optimizer": state + held["masters"],
        "activations": trainer.weighed,
        "activations_foreseen": foreseen,
        "work": owned_bytes(),
        "resident": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    every = all_of_ranks(trainer.mesh.comm, np.array([*own.values()], np.float64))
    return {name: every[:, column].tolist() for column, name in enumerate(own)}
