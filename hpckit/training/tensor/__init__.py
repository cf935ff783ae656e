"""Tensor and sequence parallelism: a transformer whose matrices, heads and vocabulary are spread over a mesh axis.

Shoeybi et al., "Megatron-LM", 2019, arXiv:1909.08053, and Korthikanti et al., "Reducing activation recomputation in
large transformer models", 2022, arXiv:2205.05198. Between the products each rank holds some of the microbatch's tokens,
whole: norms, dropout and residuals work on these alone. In front of a product that is cut by columns the tokens are
gathered; behind one that is cut by rows the sums are scattered:

    tokens of a rank -> norm -> all-gather -> columns -> heads | activation -> rows -> reduce-scatter -> + those tokens

In the backward pass each turns into the other. Logits stay cut by the vocabulary, and so does the loss.
"""
