"""Training on 6 ranks and on parts of them: pipelines equal one rank to the bit, replicas the whole batch to 1e-12."""

import hashlib
import sys
from contextlib import nullcontext
from itertools import pairwise
from time import sleep

import numpy as np
from mpi4py import MPI
from refusals import refused

import hpckit as hp
from hpckit.errors import MismatchError
from hpckit.nn.convolution import Flatten
from hpckit.nn.feedforward import mlp
from hpckit.nn.gpt import gpt2
from hpckit.nn.layer import Pass, Sequential, backward
from hpckit.nn.loss import CrossEntropy
from hpckit.nn.optimizers import AdamW, clip_scale
from hpckit.nn.parameters import Parameters
from hpckit.plan.pipeline.schedule import Action, Schedule
from hpckit.training.pipeline.fit import is_tied

WORLD = MPI.COMM_WORLD
VOCAB, PADDED, LENGTH = 17, 19, 5
SCHEDULES = ("gpipe", "1f1b", "interleaved", "looped_bfs", "zb_h1", "zb_h2", "zb_v")
LIMIT = 0.1  # of the norm of the gradients
SIZES, CLASSES, STEPS = [7, 11, 13, 9, 11, 5, 13, 7, 5], 5, 13  # 8 layers
RANDOM = np.random.default_rng(5)
X, TARGETS = RANDOM.standard_normal((24, 7)), RANDOM.integers(0, CLASSES, 24)


def tiny_gpt(recompute=False):
    """8 layers; the first and the last share the table of tokens."""
    return gpt2(PADDED, 6, 8, 2, LENGTH, tied=True, dropout=0.1, recompute=recompute)


def on_first(count, work, *arguments):
    """Let the first `count` ranks do something; the others sleep meanwhile, so that they take no core."""
    part = WORLD.Split(0 if WORLD.rank < count else MPI.UNDEFINED)
    if part != MPI.COMM_NULL:
        work(part, *arguments)
    done = WORLD.Ibarrier()
    while not done.Test():
        sleep(0.005)


def pipeline(comm, model, loss, samples, dtype=np.float32, **options):
    plan = hp.plan.training_plan(comm.size, len(model.layers), batch=samples, **options)
    mesh = hp.Mesh(comm, dp=plan.dp, pp=plan.pp)
    it = hp.training.Pipeline(mesh, model, loss, plan, dtype=dtype)
    it.initialize(3)
    return it


def trained(it, x, targets, steps=STEPS):
    """Losses, squared norms, and the hash of each parameter's bytes, after AdamW steps with clipped gradients."""
    optimizer, told = AdamW(it.parameters), []
    samples = len(x) // it.plan.dp
    own = slice(it.mesh.coords[0] * samples, (it.mesh.coords[0] + 1) * samples)
    for step in range(steps):
        it.zero_grads()
        result = it.run(x[own], targets[own], Pass(step=step, seed=1, first_sample=own.start))
        squared = it.squared_norm()
        optimizer.step(1e-2, clip_scale(squared, LIMIT))
        told.append((result.loss, squared))
    named = it.parameters.named()
    return told, {name: hashlib.sha256(p.value.tobytes()).hexdigest() for name, p in named.items()}


def schedules_have_the_bits_of_one_rank(comm, microbatches, schedules, make_model, loss, x, targets):
    model = make_model()
    options = {"microbatches": microbatches, "tied": is_tied(model)}
    told, hashes = trained(pipeline(MPI.COMM_SELF, model, loss, len(x), **options), x, targets)
    assert all(squared > LIMIT**2 for _, squared in told[:2]), "clipping is tested too"
    for name in schedules:
        recompute = comm.size == 3  # blocks that keep only their input have the same bits
        it = pipeline(comm, make_model(recompute), loss, len(x), pp=comm.size, schedule=name, **options)
        other, found = trained(it, x, targets)
        assert other == told, (comm.size, name, other, told)
        for parameter, value in found.items():
            assert value == hashes[parameter], (comm.size, name, parameter)
        seen = np.zeros(1, np.int64)
        comm.Allreduce(np.array([len(found)]), seen)
        assert seen[0] == len(hashes) + (is_tied(model) and it.plan.schedule.rank_of[-1] != 0)
        it.mesh.close()


def dropout_is_a_function_of_the_sample(comm):
    """Replicas drop what layers alone drop in the whole batch; tied weights get both gradients on each of them."""
    model, criterion = tiny_gpt(), CrossEntropy(VOCAB, PADDED)
    wanted = Parameters(model.parameters(), np.float64)
    wanted.initialize(3)
    order = hp.training.Sampler(6, 6, seed=2).take().indices
    logits, saved = model.forward(WORDS[order, :-1], Pass(seed=4, step=2))
    lost, kept = criterion.forward(logits, WORDS[order, 1:])
    backward(model, saved, criterion.backward(kept, 1 / (6 * LENGTH)))
    wanted.add_second_grads()
    for options in ({"dp": 2}, {"dp": 1, "pp": 2}):
        it = pipeline(comm, tiny_gpt(), criterion, 6, np.float64, microbatches=3, tied=True, **options)
        share = hp.training.Sampler(6, 6, seed=2).take(it.mesh.coords[0], it.plan.dp)
        it.zero_grads()
        own = WORDS[share.indices]
        result = it.run(own[:, :-1], own[:, 1:], Pass(seed=4, step=2, first_sample=share.first_sample))
        close(result.loss, lost / (6 * LENGTH), "loss")
        close(it.squared_norm(), wanted.squared_norm(), "norm")
        for name, parameter in it.parameters.named().items():
            close(parameter.grad, wanted.named()[name].grad, (options, name))


def odd_orders_add_in_the_order_of_the_microbatches(comm):
    """A table whose W come in another order, as B and as I and W, has the same bits."""
    loss = CrossEntropy(CLASSES)
    told, hashes = trained(pipeline(MPI.COMM_SELF, mlp(SIZES), loss, 24, microbatches=3), X32, TARGETS)
    words = ["0F2 0F0 0F1 0I2 0I1 0W2 0B0 0W1", "1F2 1B2 1F0 1F1 1I1 1W1 1B0"]
    order = Schedule("mine", 3, (0, 1), tuple(tuple(map(Action.parse, line.split())) for line in words))
    it = pipeline(comm, mlp(SIZES), loss, 24, pp=2, microbatches=3, schedule=order)
    other, found = trained(it, X32, TARGETS)
    assert other == told
    assert all(hashes[name] == value for name, value in found.items())


def one_rank_gradients(samples):
    """Of the whole batch at once, in float64."""
    it = pipeline(MPI.COMM_SELF, mlp(SIZES), CrossEntropy(CLASSES), 24, np.float64)
    it.zero_grads()
    result = it.run(X[:samples], TARGETS[:samples])
    return result.loss, it.squared_norm(), {name: p.grad.copy() for name, p in it.parameters.named().items()}


def close(ours, theirs, what):
    scale = np.abs(theirs).max()
    assert np.abs(ours - theirs).max() <= 1e-12 * scale, (what, np.abs(ours - theirs).max() / scale)


def replicas_have_the_gradients_of_the_whole_batch(comm):
    """On every mesh, with uneven last batches, and with replicas that get nothing."""
    whole = {samples: one_rank_gradients(samples) for samples in (24, 13, 2)}
    for dp in range(1, comm.size + 1):
        pp = comm.size // dp
        if dp * pp != comm.size:
            continue
        options = {"dp": dp, "pp": pp, "microbatches": 2, "schedule": "zb_h1"}
        it = pipeline(comm, mlp(SIZES), CrossEntropy(CLASSES), 24, np.float64, **options)
        for samples, (loss, squared, gradients) in whole.items():
            sampler = hp.training.Sampler(samples, 24, shuffle=False)
            share = sampler.take(it.mesh.coords[0], dp)
            for _ in range(2):  # the same bits again
                it.zero_grads()
                result = it.run(X[share.indices], TARGETS[share.indices])
                bits = it.parameters.grads.tobytes()
            assert result.targets == samples
            close(result.loss, loss, (dp, pp, samples, "loss"))
            close(it.squared_norm(), squared, (dp, pp, samples, "norm"))
            for name, parameter in it.parameters.named().items():
                close(parameter.grad, gradients[name], (dp, pp, samples, name))
        it.zero_grads()
        again = it.run(X[share.indices], TARGETS[share.indices])
        assert again.loss == result.loss
        assert it.parameters.grads.tobytes() == bits
        # Two halves of a batch, of which only the second is summed over the replicas.
        own = hp.training.Sampler(24, 24, shuffle=False).take(it.mesh.coords[0], dp).indices
        half = len(own) // 2
        it.zero_grads()
        it.run(X[own[:half]], TARGETS[own[:half]], total=24, sync=False)
        it.run(X[own[half:]], TARGETS[own[half:]], total=24)
        for name, parameter in it.parameters.named().items():
            close(parameter.grad, whole[24][2][name], (dp, pp, "halves", name))
        it.check()
        it.mesh.close()


def data_parallel_has_them_too(comm):
    loss, _, gradients = one_rank_gradients(13)
    criterion = CrossEntropy(CLASSES)
    for bucket in (None, 0, 600):
        data = hp.training.DataParallel(comm, mlp(SIZES), dtype=np.float64, bucket_bytes=bucket)
        data.initialize(3)
        own = hp.training.Sampler(13, 13, shuffle=False).take(comm.rank, comm.size).indices
        data.parameters.zero_grads()
        scale, lost = 1 / data.total(len(own)), 0.0
        for part, sums in ((own[:1], data.no_sync()), (own[1:], nullcontext())):  # accumulated, then summed
            y, saved = data.forward(X[part])
            one, kept = criterion.forward(y, TARGETS[part])
            lost += one
            with sums:
                data.backward(saved, criterion.backward(kept, scale))
        close(data.total(lost) * scale, loss, ("loss", bucket))
        for name, parameter in data.parameters.named().items():
            close(parameter.grad, gradients[name], (bucket, name))


def a_replica_may_have_nothing(comm):
    _, _, gradients = one_rank_gradients(2)
    data, criterion = hp.training.DataParallel(comm, mlp(SIZES), dtype=np.float64), CrossEntropy(CLASSES)
    data.initialize(3)
    if comm.rank == 2:
        data.skip()
    else:
        y, saved = data.forward(X[comm.rank : comm.rank + 1])
        data.backward(saved, criterion.backward(criterion.forward(y, TARGETS[comm.rank : comm.rank + 1])[1], 1 / 2))
    for name, parameter in data.parameters.named().items():
        close(parameter.grad, gradients[name], name)


def replicas_that_differ_are_named(comm):
    data = hp.training.DataParallel(comm, mlp(SIZES))
    data.parameters.initialize(comm.rank)
    data.broadcast(root=2)
    data.check()
    other = hp.training.DataParallel(MPI.COMM_SELF, mlp(SIZES))
    other.initialize(2)
    assert data.parameters.values.tobytes() == other.parameters.values.tobytes()
    if comm.rank == 1:
        data.parameters.values[5] += 1
    try:
        data.check()
        raise AssertionError("a replica that differs was not found")
    except MismatchError as error:
        assert "replica 1" in error.message


def local_sgd_averages_parameters(comm):
    averaging = hp.training.LocalSGD(comm, every=2)
    data, criterion = hp.training.DataParallel(comm, mlp(SIZES), averaging=averaging), CrossEntropy(CLASSES)
    data.initialize(3)
    for step in range(2):
        before = data.parameters.values.copy()
        data.parameters.zero_grads()
        y, saved = data.forward(X32[comm.rank : comm.rank + 3])
        data.backward(saved, criterion.backward(criterion.forward(y, TARGETS[:3])[1], 1 / 3))
        data.parameters.values -= 0.1 * data.parameters.grads
        assert data.after_step() == (step == 1)
    assert not np.array_equal(before, data.parameters.values)
    data.check()


def a_parameter_server_trains_like_an_all_reduce(comm):
    """With a staleness of 0: 2 servers that cut the parameters in two, the others work; to the bit."""
    criterion = CrossEntropy(CLASSES)

    def gradients(model, parameters, worker):
        parameters.zero_grads()
        part = slice(6 * worker, 6 * worker + 6)
        y, saved = model.forward(X32[part], Pass())
        backward(model, saved, criterion.backward(criterion.forward(y, TARGETS[part])[1], 1 / 6))

    model = mlp(SIZES)
    parameters = Parameters(model.parameters())
    parameters.initialize(1)
    with hp.training.parameter_server(comm, parameters, AdamW, lambda step: 1e-2 / (1 + step), servers=2) as server:
        for _ in range(4 if server.is_worker else 0):
            server.pull(parameters.values)
            gradients(model, parameters, comm.rank - 2)
            server.push(parameters.grads)
    server.pull(parameters.values)
    alone = mlp(SIZES)
    wanted = Parameters(alone.parameters())
    wanted.initialize(1)
    optimizer = AdamW(wanted)
    for step in range(4):
        total = np.zeros_like(wanted.grads)
        for worker in range(comm.size - 2):
            gradients(alone, wanted, worker)
            total += wanted.grads
        wanted.grads[...] = total / np.float32(comm.size - 2)
        optimizer.step(1e-2 / (1 + step))
    assert parameters.values.tobytes() == wanted.values.tobytes()


def one_compiles_for_all(comm):
    """One rank meets every kernel first; the others then find them on disk."""
    for make, x, targets, criterion in (
        (tiny_gpt, WORDS[:6, :-1], WORDS[:6, 1:], CrossEntropy(VOCAB, PADDED)),
        (lambda: mlp(SIZES), X[:6], TARGETS[:6], CrossEntropy(CLASSES)),
    ):
        for dtype in (np.float32, np.float64):
            model = make()
            it = pipeline(comm, model, criterion, 6, dtype, tied=is_tied(model))
            trained(it, x.astype(dtype) if x.dtype.kind == "f" else x, targets, 1)


def what_does_not_fit_is_refused(comm):
    model, loss = mlp(SIZES), CrossEntropy(CLASSES)
    plan = hp.plan.training_plan(2, 8, pp=2, batch=4, microbatches=2)
    with hp.Mesh(comm, dp=2, pp=1) as mesh:
        refused(lambda: hp.training.Pipeline(mesh, model, loss, plan), "dp=2 x pp=1")
    with hp.Mesh(comm, dp=1, pp=2) as mesh:
        refused(lambda: hp.training.Pipeline(mesh, mlp(SIZES[1:]), loss, plan), "7 layers")
        refused(lambda: hp.training.DataParallel(mesh["dp"], None), "not a NoneType")
        tied = hp.plan.training_plan(2, 8, pp=2, batch=4, microbatches=2, tied=True)
        refused(lambda: hp.training.Pipeline(mesh, model, loss, tied), "tie")
        refused(lambda: hp.training.Pipeline(mesh, Sequential([model.layers[0]] * 8), loss, plan), "share")
        it = hp.training.Pipeline(mesh, model, loss, plan)
        refused(lambda: it.run(X[:5], TARGETS[:5]), "4 samples")
        refused(lambda: it.run(X[:4], TARGETS[:3]), "3 targets")
    late = Sequential([Flatten(), mlp([SIZES[0], CLASSES])])  # whose second layer gives its input no gradient
    two = hp.plan.training_plan(1, 2, batch=4, schedule="interleaved", chunks=2)
    it = hp.training.Pipeline(hp.Mesh(MPI.COMM_SELF, dp=1, pp=1), late, loss, two)
    refused(lambda: it.run(X32[:4], TARGETS[:4]), "stage 1 begins with a layer that gives no gradient")


def gradients_leave_before_the_last_weights(comm):
    """B sends the gradient of its stage's input as soon as it is there: W of the first layer comes after."""
    it = pipeline(comm, mlp(SIZES), CrossEntropy(CLASSES), 24, pp=2, microbatches=4, schedule="1f1b")
    events = []
    (stage,), messages = it._own.stages.values(), it._own.messages
    send, weight = messages.send, stage.layers[0].backward_weight
    messages.send = lambda *it: (events.append("send"), send(*it))
    stage.layers[0].backward_weight = lambda *it: (events.append("W"), weight(*it))
    it.run(X32, TARGETS)
    assert events == (["send", "W"] * 4 if comm.rank else ["send", "send", "W"] + ["send", "W"] * 2 + ["W"]), events
    it.mesh.close()


def a_step_is_measured(comm):
    it = pipeline(comm, mlp(SIZES), CrossEntropy(CLASSES), 24, pp=2, microbatches=4, schedule="zb_h1")
    it.run(X32, TARGETS)
    step = it.measured()
    assert [i.action for i in step.price.intervals if i.rank == comm.rank] == list(it.plan.schedule.actions[comm.rank])
    for rank in range(2):
        own = [i for i in step.price.intervals if i.rank == rank]
        assert all(a.begin <= a.end <= b.begin for a, b in pairwise(own))
    forward = {i.action.microbatch: i for i in step.price.intervals if i.action[:2] == (0, "F")}
    for interval in step.price.intervals:
        if interval.action[:2] == (1, "F"):
            assert interval.begin >= forward[interval.action.microbatch].end
    assert step.price.messages == 8
    assert sum(step.price.sent) == 8 * 6 * SIZES[4] * 4
    assert hp.plan.price_schedule(step.schedule, times=step.times).seconds > 0
    assert hp.plan.draw_schedule(step.schedule, step.price).count("rank") >= 2
    layers = it.layer_times()
    assert [layer.name for layer in layers] == list(mlp(SIZES).names)
    assert all(layer.seconds > 0 for layer in layers)


if __name__ == "__main__":
    X32 = X.astype(np.float32)
    WORDS = RANDOM.integers(0, VOCAB, (24, LENGTH + 1))
    on_first(1, one_compiles_for_all)
    case = tiny_gpt, CrossEntropy(VOCAB, PADDED), WORDS[:, :-1], WORDS[:, 1:]
    bits = schedules_have_the_bits_of_one_rank
    if sys.argv[1:] == ["all"]:  # every schedule on every number of ranks, and nothing else
        for count, microbatches in ((1, 6), (2, 6), (3, 6), (4, 8)):
            on_first(count, bits, microbatches, SCHEDULES, *case)
        sys.exit()
    on_first(2, bits, 6, SCHEDULES, *case)
    on_first(3, bits, 6, ("interleaved", "zb_v"), *case)
    on_first(4, bits, 8, ("zb_h1",), *case)
    on_first(6, bits, 6, ("1f1b",), *case)
    on_first(2, dropout_is_a_function_of_the_sample)
    on_first(2, odd_orders_add_in_the_order_of_the_microbatches)
    for count in (1, 2, 3, 4, 6):
        on_first(count, replicas_have_the_gradients_of_the_whole_batch)
    for count in (1, 2, 3):
        on_first(count, data_parallel_has_them_too)
    on_first(3, a_replica_may_have_nothing)
    on_first(3, replicas_that_differ_are_named)
    on_first(2, local_sgd_averages_parameters)
    on_first(4, a_parameter_server_trains_like_an_all_reduce)
    on_first(2, what_does_not_fit_is_refused)
    on_first(2, gradients_leave_before_the_last_weights)
    on_first(2, a_step_is_measured)
