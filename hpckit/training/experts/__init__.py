"""Expert parallelism: the experts of a mixture are spread over ranks, and tokens travel to them and back.

Lepikhin et al., "GShard", 2020, arXiv:2006.16668; Liu et al., "MoE parallel folding", 2025, arXiv:2504.14960. The ranks
of a pipeline's stage hold different tokens, along dp, cp and tp alike; over the same ranks lies a second mesh
edp x ep, on which the experts are: those of an ep line hold all experts among them, and edp counts the copies. Each
block of experts has a gradient sum, shards and optimizer of its own, over edp.
"""
