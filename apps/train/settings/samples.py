"""Settings of the data: what is learned from, the samples of a step, and the text that a model writes."""

from __future__ import annotations

from pydantic import Field

from hpckit.io.settings import InputFile, Section


class Data(Section):
    """Training data."""

    file: InputFile | None = Field(
        None, description="gpt2, llama: a text file in UTF-8; omitted: the sources of hpckit itself"
    )
    tokenizer: InputFile | None = Field(
        None, description="tokenizer.json of the package tokenizers; omitted: each byte is a token"
    )
    validation: float = Field(
        0.1, gt=0, lt=1, description="share held out for validation: the end of a text, or some of the images"
    )


class Batch(Section):
    """Samples of a step."""

    size: int = Field(8, ge=1, description="samples of a step over all ranks: windows of a text, or images")
    window: int | None = Field(
        None, ge=2, description="tokens in a sample of a language model; omitted: the model's context"
    )
    microbatches: int | None = Field(
        None,
        ge=1,
        description="parts of a replica's samples, whose gradients are summed; omitted: 1, or in a pipeline as many as"
        " divide the samples, at most 4 per rank; with batch.parts a power of two, or in a pipeline one a part",
    )

    parts: int = Field(
        0,
        ge=0,
        description="a power of two, such as 8: cut the batch into so many fixed parts and add their gradients as a"
        " tree, with the same bits for any mesh.dp, mesh.pp, sharding and schedule; 0: as is fastest",
    )

    layer_parts: int = Field(
        0,
        ge=0,
        description="with batch.parts, a power of two, such as 8: cut each layer into so many fixed parts (gpt2,"
        " llama), with the same bits for any mesh.tp, too; 0: one for each rank of tp",
    )


class Sample(Section):
    """The text that a language model writes at the end."""

    tokens: int = Field(200, ge=0, description="number of tokens; 0: none")
    prompt: str = Field("\n", min_length=1, description="text to continue")
    temperature: float = Field(0.8, ge=0, description="sampling temperature; 0: always the likeliest token")
    top_k: int = Field(40, ge=0, description="choose among this many of the likeliest tokens; 0: all")
