"""The page of error codes and exit codes, made from what `hpckit explain` prints."""

from __future__ import annotations

from pieces import code, table

from hpckit import errors
from hpckit.cli.verbs.explain import EXPLANATIONS

HEAD = """# Errors and exit codes

Look up an error by its code here, or with `hpckit explain CODE`. Each error says what was found and where, the likely
cause and what to do. The exception classes are in `hpckit.errors`; all are `HpckitError`.

## Exit codes

"""


def page() -> str:
    """Exit codes, then each error code with its class."""
    text = HEAD + table(("exit code", "meaning"), ((code(number), said) for number, said in errors.EXIT_CODES.items()))
    classes = {kind.code: kind for kind in vars(errors).values() if isinstance(kind, type) and hasattr(kind, "code")}
    for name, (meaning, causes, do) in EXPLANATIONS.items():
        kind = classes[name]
        text += f"\n## {name}: {kind.title}\n\n{meaning}\n\n"
        text += f"- **Causes**: {causes}\n- **Do**: {do}\n"
        text += f"- **Exit code** {kind.exit_code}, `hpckit.errors.{kind.__name__}`\n"
    return text
