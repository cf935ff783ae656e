"""GPT-2 and Llama of transformers, with random weights, sharded and replicated, against one process."""

import copy
import functools

import torch
import torch_models as models
from mpi4py import MPI
from torch.optim import AdamW
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from hpckit.torch import DistributedDataParallel, FullyShardedDataParallel

WORLD = MPI.COMM_WORLD
adamw = functools.partial(AdamW, lr=1e-2, eps=1e-4)


def made():
    gpt2 = GPT2Config(
        vocab_size=models.VOCAB, n_positions=8, n_embd=12, n_layer=2, n_head=3, resid_pdrop=0, embd_pdrop=0,
        attn_pdrop=0,
    )  # fmt: skip
    llama = LlamaConfig(
        vocab_size=models.VOCAB, hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=8,
    )  # fmt: skip
    torch.manual_seed(0)
    return GPT2LMHeadModel(gpt2).double(), LlamaForCausalLM(llama).double()


def steps(model, optimizer, batches, part):
    losses = []
    for tokens, _ in batches:
        optimizer.zero_grad()
        own = tokens[part]
        loss = model(input_ids=own, labels=own).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def shapes_of_transformers():
    for model in made():
        batches = [models.texts(number, 2 * WORLD.size) for number in range(3)]
        alone = copy.deepcopy(model)
        steps(alone, adamw(alone.parameters()), batches, slice(None))
        wanted = models.values_of(alone)
        part = slice(WORLD.rank, None, WORLD.size)
        data = DistributedDataParallel(copy.deepcopy(model), WORLD)
        losses = steps(data, adamw(data.parameters()), batches, part)
        models.close(models.values_of(data.module), wanted)
        for by_pointer in (True, False):
            cut = FullyShardedDataParallel(copy.deepcopy(model), WORLD, by_pointer=by_pointer)
            assert len(cut.units) == 3
            assert steps(cut, adamw(cut.parameters()), batches, part) == losses
            models.same(cut.full_state_dict(), models.values_of(data.module))


CASES = (shapes_of_transformers,)
