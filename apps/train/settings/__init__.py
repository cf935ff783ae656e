"""The sections of a run file of training, each checked by itself."""
