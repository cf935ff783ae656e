"""Layers, losses and optimizers on flat vectors of parameters: no MPI, no mesh, no state between microbatches."""

from hpckit import loaded_on_use

_NAMES = {
    "activations": ("ExactGELU", "GELU", "ReLU", "SiLU"),
    "convolution": ("Convolution", "Flatten", "MaxPool"),
    "dropout": ("Dropout",),
    "embedding": ("Embedding", "Unembedding"),
    "feedforward": ("Experts", "FeedForward", "GatedFeedForward", "mlp"),
    "gpt": ("gpt2", "llama"),
    "layer": ("KeyValues", "Layer", "Pass", "Sequential", "backward"),
    "linear": ("Linear",),
    "loss": ("CrossEntropy",),
    "norms": ("LayerNorm", "RMSNorm"),
    "optimizers": ("SGD", "AdamW", "clip_scale", "warmup_cosine"),
    "parameters": ("Parameter", "Parameters"),
    "transformer.attention": ("Attention",),
    "transformer.block": ("Recompute", "Residual"),
    "transformer.rotary": ("RopeScaling",),
}
_HOMES = {name: f"hpckit.nn.{file}" for file, names in _NAMES.items() for name in names}
_HOMES |= dict.fromkeys(("multiply", "pack", "pack_gguf"), "hpckit.kernels.nn.tile.dispatch")
__all__ = list(_HOMES)
__getattr__, __dir__ = loaded_on_use(__name__, _HOMES)
