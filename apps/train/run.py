"""The run of the training app: steps, metrics, validation, weights, a sample text."""

from __future__ import annotations

import math
import time as clock
from functools import partial
from typing import Any

import numpy as np

from hpckit.apps.common.loop import Due, Evolution, time_loop
from hpckit.apps.train import weights
from hpckit.apps.train.config import Config
from hpckit.apps.train.data import ANSWERS, Images
from hpckit.apps.train.layout import TrainingSetup, layout
from hpckit.apps.train.memory import memory_of, memory_per_rank
from hpckit.apps.train.output.evaluation import Evaluation, answers_record, evaluate
from hpckit.apps.train.output.figures import TrainingFigures
from hpckit.apps.train.output.timeline import TIMELINE, record_of
from hpckit.apps.train.trainer import StepFigures, Trainer, balanced
from hpckit.comm.mesh import Mesh
from hpckit.io.checkpoint.state import Restored, State
from hpckit.nn.gpt import continued
from hpckit.plan.pipeline.price import price_schedule
from hpckit.report.units import number, percent, scaled
from hpckit.run.context import DryRun, Run

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


def describe(laid: TrainingSetup) -> list[str]:
    """What is trained on what, in lines."""
    count = sum(parameter.size for parameter in laid.model.parameters())
    shape, plan = laid.shape, laid.plan
    net = {
        "gpt2": f"GPT-2 shaped network of {shape.layers} x {shape.width}, {shape.heads} heads",
        "llama": f"Llama shaped network of {shape.layers} x {shape.width}, {shape.heads} heads,"
        f" {shape.kv_heads} of keys and values" + f", {shape.top_k} of {shape.experts} experts" * (shape.experts > 0),
        "mlp": f"multilayer perceptron of {shape.layers} hidden layers of {shape.width}",
        "cnn": f"convolution network of {', '.join(map(str, shape.channels))} channels",
    }[shape.kind]
    each = f"samples of {laid.window} tokens" if shape.is_language else "images"
    return [
        f"{net}: {count} parameters",
        f"{laid.data.name}: {len(laid.data.training)} {each} to train on, {len(laid.data.validation)} for validation",
        str(plan),
    ]


def dry_run(config: Config, ranks: int) -> DryRun:
    """The cost of `run` on that many ranks; raises the errors that it would raise before its start."""
    laid = layout(config, ranks)
    plan, itemsize = laid.plan, np.dtype(config.precision if not config.storage else np.uint16).itemsize
    count = sum(parameter.size for parameter in laid.model.parameters())
    price = price_schedule(plan.schedule)
    per_step = config.batch.size * laid.window
    unit = "tokens" if laid.shape.is_language else "images"
    memory = memory_per_rank(config, laid)
    part = config.batch.size // (plan.dp * plan.microbatches)
    tokens = part * laid.window * laid.shape.width * itemsize // plan.cp if laid.shape.is_language else 0  # microbatch
    sent = price.messages // max(plan.pp, 1) * tokens / plan.tp if plan.pp > 1 else 0
    # Tokens are gathered twice in a block, and their sums scattered, forward and backward.
    blocks = plan.microbatches * laid.shape.layers / plan.pp
    sent += 8 * blocks * (plan.tp - 1) / plan.tp * tokens
    if plan.cp > 1:  # keys and values are gathered forward and backward, their gradients scattered
        sent += 3 * blocks * (plan.cp - 1) * tokens * 2 * laid.shape.kv_heads / laid.shape.heads
    held = max(memory["parameters"]) * (plan.replicas if config.sharding.stage == 3 else 1) / itemsize
    back = itemsize if config.sharding.stage else config.gradient_bytes  # values of shards, or sums
    reduced = (plan.replicas - 1) / plan.replicas * held * (config.gradient_bytes + back)
    notes = [
        f"{per_step} {unit} and {config.batch.size * laid.shape.training_flops(laid.window) / 1e9:.3g} GFLOP a step"
    ]
    if plan.pp > 1:
        notes.append(f"bubble {price.bubble:.2%} if F, I and W take equally long on all stages")
    for rank, (*held, activations) in enumerate(zip(*memory.values(), strict=True)):
        who = f"{'a rank of stage' if plan.tp > 1 else 'rank'} {rank} of a pipeline" if plan.pp > 1 else "a rank"
        notes.append(
            f"{who}: {sum(held) / 1e6:.3g} MB of parameters, gradients and optimizer,"
            f" about {activations / 1e6:.3g} MB of activations"
        )
    return DryRun(
        ranks=ranks,
        decomposition=describe(laid),
        halo_bytes=round(sent + reduced),
        moved="messages",
        memory_per_rank=round(max(map(sum, zip(*memory.values(), strict=True)))),
        output_bytes=count * itemsize,
        frames=1,
        steps=config.time.steps,
        notes=notes,
    )
