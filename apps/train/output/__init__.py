"""What a run of training measures and writes beside its weights: figures of a step, validations, a timeline."""
