"""Training on a mesh: data parallelism, pipelines, and which samples a rank takes."""
