"""Settings of the mesh: its axes, and how ranks along each of them share the work."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from hpckit.io.settings import Section


class Ranks(Section):
    """The mesh: how the ranks share the work; ranks of one tp or cp group are neighbors."""

    dp: int = Field(0, ge=0, description="replicas, which share the samples; 0: all ranks over pp cp tp")
    pp: int = Field(1, ge=1, description="stages of a pipeline, which share the layers")
    cp: int = Field(1, ge=1, description="ranks that share the tokens of each sample, for long windows (gpt2, llama)")
    tp: int = Field(
        1, ge=1, description="ranks that share each layer: heads, columns of matrices, vocabulary (gpt2, llama)"
    )
    ep: int = Field(
        1, ge=1, description="ranks that share the experts of each block, over the same ranks as dp, cp and tp (llama)"
    )
    etp: int = Field(
        1,
        ge=1,
        description="ranks that share the hidden numbers of each expert, as tp does of a layer; ep x etp divides"
        " dp x cp x tp (llama)",
    )


class Tensor(Section):
    """Layers on several ranks (mesh.tp)."""

    chunks: int = Field(
        1,
        ge=1,
        le=64,
        description="pieces in which the tokens of a microbatch go through a block's MLP: messages of one travel while"
        " another is multiplied, which pays between nodes",
    )


class Context(Section):
    """The tokens of a sample on several ranks (mesh.cp)."""

    kind: Literal["auto", "gather", "ring", "ulysses"] = Field(
        "auto",
        description="how attention meets the keys of other ranks: gather: all of them come first; ring: they go round"
        " while it works; ulysses: tokens change to heads, and back; auto: what is priced as quickest",
    )


class Pipeline(Section):
    """The schedule of a pipeline."""

    schedule: str | None = Field(
        None,
        description="gpipe, 1f1b, interleaved, looped_bfs, zb_h1, zb_h2, zb_v, dualpipe_v, interleaved_zb, zb_wave,"
        " or a CSV file; omitted:"
        " 1f1b, or with sharding.stage 2 or 3 and no pipeline looped_bfs with a stage for each layer",
    )
    chunks: int | None = Field(
        None, ge=1, description="stages per rank, for interleaved, looped_bfs, interleaved_zb (omitted: 2), zb_wave (4)"
    )
    paired: bool = Field(
        True,
        description="with zb_v or dualpipe_v, hide messages to experts behind another microbatch; no bit of a result"
        " changes, and `hpckit plan train` says which is quicker",
    )
    balance: Literal["measured", "arithmetic"] = Field(
        "measured",
        description="split the layers into stages of equal time, measured at the start, or of equal operations (always"
        " on GPUs)",
    )


class Sharding(Section):
    """What the replicas hold in shards (ZeRO): it changes memory and messages; without `group` no bit of a result."""

    stage: Literal[0, 1, 2, 3] = Field(
        0,
        description="0: nothing; 1: the optimizer's state; 2: and the gradients; 3: and the parameters, which within a"
        " node exist once from 1 on",
    )
    group: int = Field(
        0,
        ge=0,
        description="so many neighboring replicas hold a copy in shards, such as the ranks of a node, and others"
        " further copies (hybrid); bits are then kept with batch.parts only; 0: all replicas hold one",
    )

    @model_validator(mode="after")
    def _groups_have_shards(self) -> Self:
        if self.group and not self.stage:
            raise ValueError(f"sharding.group is {self.group} without shards: set sharding.stage to 1, 2 or 3, too")
        return self
