"""Gray-Scott: an app in full, as `hpckit init --app NAME` writes it."""
