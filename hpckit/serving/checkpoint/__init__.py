"""What a model is read from: folders of Hugging Face and GGUF files; its shape, and its weights packed."""
