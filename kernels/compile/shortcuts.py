"""What Numba's compiler does again and again, and need do once: a third of the time in which it compiles our kernels.

All of it by private hooks. Where a release has lost one, Numba works as it does by itself, with the same results.
"""

from __future__ import annotations

import copy
import functools
import importlib
import importlib.util
import sys
import types
import weakref
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from numba.core import ir
from numba.core.bytecode import FunctionIdentity

# The untyped code of each inlined function, once one call of it was inlined.
untyped: weakref.WeakKeyDictionary[Callable, Any] = weakref.WeakKeyDictionary()


@functools.cache
def take() -> None:
    """Take all of them. Done when a kernel is first asked for: a start without one need not pay what this imports."""
    _load_registries()
    _remember_untyped()
    _remember_signatures()
    _list_variables()
    _live_by_bits()


class _Scope(ir.Scope):
    """The variables of an inlined function: Numba copies the code of a call block by block, and these with each."""

    def __deepcopy__(self, memo: dict) -> _Scope:
        return self


def _remember_untyped() -> None:
    """Have Numba translate the bytecode of an inlined function once, not at each of its calls.

    Numba copies the statements of the code before it changes them, and adds names to its variables: each call has
    variables of its own.
    """
    from numba.core import inline_closurecall

    worker: Any = getattr(inline_closurecall, "InlineWorker", None)
    translate = getattr(worker, "run_untyped_passes", None)
    variables = getattr(ir, "VarMap", object)()
    if translate is None or not hasattr(FunctionIdentity, "from_function") or not hasattr(variables, "_con"):
        return

    def run_untyped_passes(self: Any, func: Callable, enable_ssa: bool = False) -> Any:
        if enable_ssa or func not in untyped:
            return translate(self, func, enable_ssa)
        if untyped[func] is None:
            untyped[func] = made = translate(self, func, enable_ssa)
            for block in made.blocks.values():
                block.scope.__class__ = _Scope
        code = untyped[func].copy()
        code.func_id = FunctionIdentity.from_function(func)
        scopes = {id(block.scope): copy.copy(block.scope) for block in code.blocks.values()}
        for scope in scopes.values():
            scope.localvars = copy.copy(scope.localvars)
            scope.localvars._con = dict(scope.localvars._con)
            scope.redefined, scope.var_redefinitions = defaultdict(int), defaultdict(set)
        for block in code.blocks.values():
            block.scope = scopes[id(block.scope)]
        return code

    worker.run_untyped_passes = run_untyped_passes


def _remember_signatures() -> None:
    """Have Numba look once for what `+` of two numbers gives, or `[]` of an array: it tries a dozen rules each time.

    Kept for a function and the types of its arguments, where they are numbers, vectors or arrays and the rule that fits
    needs no compiled function of its own. Rules that are added later make a new function type, which knows nothing yet.
    """
    from numba import types as numbas
    from numba.core.types import functions

    from hpckit.kernels.compile.vectors import Vec

    kind: Any = getattr(functions, "BaseFunction", None)
    find = getattr(kind, "get_call_type", None)
    if find is None or not hasattr(numbas.Function, "get_impl_key"):
        return
    plain = (numbas.Number, numbas.Boolean, numbas.Literal, numbas.Array, numbas.SliceType, Vec)

    def get_call_type(self: Any, context: Any, args: tuple, kws: dict) -> Any:
        rules = getattr(self, "_impl_keys", None)
        if kws or rules is None or not all(isinstance(each, plain) for each in args):
            return find(self, context, args, kws)
        known = self.__dict__.setdefault("_known_signatures", {})
        signature = known.get((context, args))
        if signature is None:
            signature = find(self, context, args, kws)
            if rules.get(signature.args) is self.typing_key:
                known[context, args] = signature
        else:
            rules[signature.args] = self.typing_key  # as when it is found
        return signature

    kind.get_call_type = get_call_type


def _list_variables() -> None:
    """Have Numba list the variables of a statement into one list, and look at types before it asks for classes."""
    if not hasattr(ir.Inst, "_rec_list_vars"):
        return
    without = {str, int, float, bool, type(None), ir.Loc, ir.Const, ir.Global, ir.FreeVar, ir.Arg}

    def gather(value: Any, found: list) -> None:
        kind = type(value)
        if kind is ir.Var:
            found.append(value)
        elif kind in without:
            return
        elif isinstance(value, list | tuple):
            for each in value:
                gather(each, found)
        elif isinstance(value, dict):
            for each in value.values():
                gather(each, found)
        elif isinstance(value, ir.Inst):
            found.extend(value.list_vars())

    def list_variables(self: Any, value: Any) -> list:
        found: list = []
        gather(value, found)
        return found

    ir.Inst._rec_list_vars = list_variables


def _live_by_bits() -> None:
    """Have Numba find the variables that live at the entry of each block with a bit for each, and not with sets."""
    from numba.core import analysis

    if not hasattr(analysis, "compute_live_map"):
        return

    def settled(masks: dict[Any, int], sweep: Callable[[], None]) -> None:
        before = None
        while before != masks:
            before = dict(masks)
            sweep()

    def compute_live_map(cfg: Any, blocks: dict, uses: dict, defines: dict) -> dict:
        """Numba's own, by the same rules: what is used, and what a successor needs that may come from here."""
        names = list(set().union(*uses.values()))  # all others live in one block
        place = {name: at for at, name in enumerate(names)}
        order = cfg.topo_order()
        used, defined = (
            {at: sum(1 << place[name] for name in found[at] if name in place) for at in blocks}
            for found in (uses, defines)
        )
        after = {at: [one for one, _ in cfg.successors(at)] for at in order}
        reach, live = {at: used[at] | defined[at] for at in order}, dict(used)

        def forward() -> None:
            for at in order:
                for one in after[at]:
                    reach[one] |= reach[at]

        def backward() -> None:
            for at in reversed(order):
                for one in after[at]:
                    live[at] |= live[one] & reach[at] & ~defined[at]

        settled(reach, forward)
        settled(live, backward)
        return {at: {name for name in names if live[at] >> place[name] & 1} for at in blocks}

    analysis.compute_live_map = compute_live_map


def _load_registries() -> None:
    """Have Numba load what arrays need without SciPy's linear algebra, the slowest import of a rank's start.

    Numba imports that at once, but only to see whether it is there (`numba.np.arraymath`), and again for a function
    that calls BLAS: until then its name is enough.
    """
    name = "scipy.linalg.cython_blas"
    if name in sys.modules or importlib.util.find_spec("scipy") is None:
        return
    sys.modules[name] = types.ModuleType(name)
    try:
        importlib.import_module("numba.np.arraymath")
    finally:
        del sys.modules[name]
