"""Sharded data parallelism: optimizer state, gradients and parameters in shards, each on one replica.

Rajbhandari et al. 2020, "ZeRO: memory optimizations toward training trillion parameter models", arXiv:1910.02054. A
shard is a range of the flat vector, so nothing is copied to cut it. The stages:

    1  every replica keeps the optimizer's state of its own shard only
    2  and the gradients: those of a unit live from its first backward pass until they are summed
    3  and the parameters: those of a unit are gathered ahead of its use and freed behind it

A unit is a stage of the pipeline, so a schedule with several stages a rank (`looped_bfs`) has small ones. Where the
replicas share a node, parameters live there once, in shared memory, from stage 1 on: to gather them is a pointer.

The replicas may be several groups, each with a copy in shards (hybrid): parameters are gathered within a group, such as
the ranks of a node; gradients are summed within it, then each shard over the groups.

In mixed precision what is gathered, or lies in shared memory, are the values in 16 bits; each replica has the float32
master values of its own shard. Gradients, too, may go between replicas in 16 bits: each replica rounds its own, they
are added in float32 in the order of the ranks, and the sum is rounded once, at every stage alike. As parts of a batch
they are rounded at every node of its tree, so that a node is the same number on one replica and between two.
"""
