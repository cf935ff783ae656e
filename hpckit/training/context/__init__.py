"""Context parallelism: the tokens of each sample are spread over the ranks of a mesh axis cp.

A rank has two chunks of a sample, from both ends (zigzag), and computes everything of its own tokens; only attention
needs others, the keys and values of the tokens before. They are gathered (`gather`), go round (`ring`), or tokens
change to heads (`ulysses`). Gradients of parameters are then summed over dp and cp alike.
"""
