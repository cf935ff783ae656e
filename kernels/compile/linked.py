"""Functions that are compiled only to be called by a kernel, into which they are linked: they need neither machine code
of their own, nor entries from Python and C, nor a file on disk. A fifth of the time of kernels that call kernels went
there.

All of it by private hooks. Where a release has lost one, Numba works as it does by itself, with the same results.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

import numba
from numba.core.compiler import Flags
from numba.core.errors import ForceLiteralArg


class _Depth(threading.local):
    """How many kernels this thread is compiling, each for the one before it."""

    kernels = 0


depth = _Depth()


class Called:
    """Stands for the entry point of a function that was compiled only to be called by another."""


def is_called() -> bool:
    """Whether what is compiled next is called by a kernel that is being compiled, and can be compiled for it alone."""
    return depth.kernels > 0 and _has_library_hooks()


@functools.cache
def _has_library_hooks() -> bool:
    from numba.core import codegen

    library = getattr(codegen, "JITCodeLibrary", None)
    names = ("_finalize_final_module", "_finalize_dynamic_globals", "_verify_declare_only_symbols")
    return all(hasattr(library, name) for name in names) and "no_compile" in getattr(Flags, "options", {})


@functools.cache
def take() -> None:
    """Have Numba compile its own functions for arrays and numbers like this, too, where a kernel calls them."""
    from numba.core.dispatcher import Dispatcher

    if not _has_library_hooks():
        return
    dispatcher: Any = Dispatcher
    compile_function = dispatcher.compile

    def compile_or_link(self: Any, sig: Any) -> Any:
        # Without an entry from Python there is none that calls it, but functions that are compiled.
        if is_called() and self.targetoptions.get("no_cpython_wrapper"):
            return compile_called(self, sig)
        return compile_function(self, sig)

    dispatcher.compile = compile_or_link


def compile_called(function: Any, signature: Any) -> Any:
    """Compile a function (a dispatcher of Numba) for the kernel that calls it."""
    with function._compiling_counter:  # how Numba finds a function that calls itself
        return _compile_called(function, signature)


def _compile_called(function: Any, signature: Any) -> Any:
    context, compiler = function.targetctx, function._compiler
    arguments, returned = numba.core.sigutils.normalize_signature(signature)
    if arguments in function.overloads:
        return function.overloads[arguments].entry_point
    load = getattr(function, "load_without_lock", None)
    made = load(signature, context) if load is not None else None
    if made is not None:  # a process has called it from Python
        context.insert_user_function(made.entry_point, made.fndesc, [made.library])
        function.add_overload(made)
        return made.entry_point
    customize = compiler._customize_flags

    def without_entries(flags: Any) -> Any:
        flags = customize(flags)
        flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
        return flags

    compiler._customize_flags = without_entries
    try:
        made = compiler.compile(arguments, returned)._replace(entry_point=Called())
    except ForceLiteralArg as error:  # an argument's value is to be known: as Numba's own
        raise error.bind_fold_arguments(lambda args, kws: compiler.fold_argument_types(args, kws)[1]) from error
    finally:
        compiler._customize_flags = customize
    library = made.library

    def finalize() -> None:  # as Numba does, but for the machine code
        library._finalize_dynamic_globals()
        library._verify_declare_only_symbols()
        library._finalized = True

    library._finalize_final_module = finalize
    context.insert_user_function(made.entry_point, made.fndesc, [library])
    function.overloads[arguments] = made
    return made.entry_point


def give_environments(made: Any) -> None:
    """Tell a kernel's machine code where the constants are of the functions that were linked into it."""
    from numba.core.environment import lookup_environment

    for each in made.library._final_module.global_variables:
        if each.name.startswith("_ZN08NumbaEnv") and (found := lookup_environment(each.name)) is not None:
            made.library.codegen.set_env(each.name, found)
