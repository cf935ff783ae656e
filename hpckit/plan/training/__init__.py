"""Training steps of language models as plans: their memory, their time on a machine, and the choice of a mesh."""
