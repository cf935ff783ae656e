"""An app inside an app: a validation that runs the probe."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

SUMMARY = "runs the probe twice and compares the steps"
PRESETS: dict[str, tuple[str, dict[str, Any]]] = {"four": ("four steps", {"steps": 4})}


class Config(BaseModel):
    model_config = ConfigDict(extra="forbid")

    app: Literal["probe/twice"] = Field("probe/twice", description="The app.")
    steps: int = Field(3, description="Steps of the second run.")
    fail: bool = Field(False, description="The second run blows up.")
    wrong: bool = Field(False, description="Ask for a setting that the probe lacks.")
