"""Where the ranks of a server stand: stages of layers, replicas with texts of their own, columns of every weight."""

from __future__ import annotations

from dataclasses import dataclass

from hpckit.errors import InputError


@dataclass(frozen=True)
class Places:
    """Where the ranks stand: `stages` of consecutive layers, of `replicas` that take texts of their own, of `columns`
    ranks that split every weight. Rank 0 is on the last stage, which has the logits.

    Raises `InputError` for numbers that do not make `ranks`.
    """

    ranks: int = 1
    stages: int = 1
    replicas: int = 1

    def __post_init__(self) -> None:
        if self.stages < 1 or self.ranks % self.stages:
            raise InputError(
                f"{self.ranks} rank(s) are not {self.stages} equal stages",
                do=f"give {_divisors(self.ranks)} stages, or the same number of ranks on each node",
            )
        if self.replicas < 1 or self.of_stage % self.replicas:
            of = " of a stage" if self.stages > 1 else ""
            raise InputError(
                f"{self.of_stage} rank(s){of} are not {self.replicas} equal replicas",
                do=f"give {_divisors(self.of_stage)} replicas, or a number of ranks (-n) that is a multiple of"
                f" {self.stages * max(1, self.replicas)}",
            )

    @property
    def of_stage(self) -> int:
        """Ranks of a stage."""
        return self.ranks // self.stages

    @property
    def columns(self) -> int:
        """Ranks of a replica on a stage."""
        return self.of_stage // self.replicas

    def place(self, rank: int) -> tuple[int, int, int]:
        """Stage, replica and column of a rank."""
        group, own = divmod(rank, self.of_stage)
        return (group - 1) % self.stages, *divmod(own, self.columns)

    def rank(self, stage: int, replica: int = 0, column: int = 0) -> int:
        """The rank at a place."""
        return (stage + 1) % self.stages * self.of_stage + replica * self.columns + column

    @property
    def leaders(self) -> list[int]:
        """The ranks that hear the plan from rank 0 for their stages, in their order."""
        return [group * self.of_stage for group in range(1, self.stages)]


def _divisors(ranks: int) -> str:
    return " or ".join(str(n) for n in range(1, ranks + 1) if ranks % n == 0)
