"""What of a run has a form for GPUs."""

from __future__ import annotations

from typing import Any

from hpckit.apps.md.config import Config
from hpckit.errors import InputError

# Settings that kernels for GPUs are not written for, and the value with which they are out of the way.
WITHOUT_GPU_FORM: dict[str, Any] = {
    "repro": False,
}


def require_gpu_form(config: Config) -> None:
    """Raise `InputError` that names all settings without a form for GPUs."""
    given = config.model_dump()
    refused = [path for path, plain in WITHOUT_GPU_FORM.items() if _at(given, path, plain) != plain]
    if refused:
        raise InputError(
            f"no form for GPUs: {', '.join(f'{path} = {_at(given, path, None)!r}' for path in refused)}",
            do="leave --gpu out, or set " + ", ".join(f"{path} = {WITHOUT_GPU_FORM[path]!r}" for path in refused),
        )


def _at(settings: dict[str, Any], path: str, default: Any) -> Any:
    *sections, name = path.split(".")
    for section in sections:
        settings = settings[section]
    return settings.get(name, default)
