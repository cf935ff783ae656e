"""What Numba's compiler does again and again, and need do once: half of the time in which it compiles our kernels.

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
    _copy_statements()
    _remember_signatures()
    _find_functions()
    _compare_flags()
    _list_variables()
    _find_uses()
    _live_by_bits()
    _analyze_when_asked()
    _rewrite_in_silence()
    _say_errors_plainly()
    _look_at_signatures_once()
    _optimize_bodies()
    _raise_plainly()


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

    Kept for a function and the types of its arguments, where they are numbers, vectors, arrays or tuples of them and
    the rule that fits needs no compiled function of its own. Rules that are added later make a new function type, which
    knows nothing yet.
    """
    from numba import types as numbas
    from numba.core.types import functions

    from hpckit.kernels.compile.vectors import Vec

    kind: Any = getattr(functions, "BaseFunction", None)
    find = getattr(kind, "get_call_type", None)
    if find is None or not hasattr(numbas.Function, "get_impl_key"):
        return
    plain = (numbas.Number, numbas.Boolean, numbas.Literal, numbas.Array, numbas.SliceType, Vec)

    def is_plain(kind: Any) -> bool:
        return isinstance(kind, plain) or (isinstance(kind, numbas.BaseTuple) and all(map(is_plain, kind)))

    def get_call_type(self: Any, context: Any, args: tuple, kws: dict) -> Any:
        rules = getattr(self, "_impl_keys", None)
        if kws or rules is None or type(args) is not tuple or not all(map(is_plain, args)):
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


def _find_functions() -> None:
    """Have Numba look for what it knows of a function before it asks of which type a value is that is a function.

    The answer to that is an error each time, with a message.
    """
    from numba.core.typing.context import BaseContext

    ask, known = getattr(BaseContext, "resolve_value_type", None), getattr(BaseContext, "_get_global_type", None)
    if ask is None or known is None:
        return
    functions = (types.FunctionType, types.BuiltinFunctionType)

    def resolve_value_type(self: Any, val: Any) -> Any:
        found = known(self, val) if type(val) in functions else None
        return ask(self, val) if found is None else found

    BaseContext.resolve_value_type = resolve_value_type


def _compare_flags() -> None:
    """Have Numba compare the options of two functions by those that are set, and hash their names once."""
    from numba.core.targetconfig import TargetConfig

    compare = TargetConfig.__eq__

    def equal(self: Any, other: Any) -> Any:
        if type(self) is type(other) and self._values == other._values:
            return True
        return compare(self, other)

    hashes: dict[type, int] = {}

    def hashed(self: Any) -> int:
        kind = type(self)
        if kind not in hashes:
            hashes[kind] = hash(tuple(sorted(kind.options)))
        return hashes[kind]

    if hasattr(TargetConfig(), "_values") and hasattr(TargetConfig, "options"):
        TargetConfig.__eq__, TargetConfig.__hash__ = equal, hashed


def _copy_statements() -> None:
    """Have Numba copy the statements of an inlined function, and not all that they point to: variables and places in
    the source never change.
    """
    from numba.core import inline_closurecall

    deeply = getattr(getattr(inline_closurecall, "copy", None), "deepcopy", None)
    if deeply is None:
        return
    same = {ir.Var, ir.Loc, type(ir.UNDEFINED), types.BuiltinFunctionType, types.FunctionType}
    same |= {str, int, float, bool, type(None)}
    holders = {ir.Assign, ir.Expr, ir.Return, ir.Branch, ir.Jump, ir.SetItem, ir.StaticSetItem, ir.Del, ir.SetAttr}
    leaves = {ir.Const, ir.Global, ir.FreeVar, ir.Arg}

    def copied(value: Any) -> Any:
        kind: Any = type(value)
        if kind in same:
            return value
        if kind in leaves:
            return copy.copy(value)
        if kind in holders:
            made = kind.__new__(kind)
            made.__dict__.update({name: copied(each) for name, each in value.__dict__.items()})
            return made
        if kind is list or kind is tuple:
            return kind(map(copied, value))
        if kind is dict:
            return {name: copied(each) for name, each in value.items()}
        return copy.deepcopy(value)

    def deepcopy(value: Any) -> Any:
        if type(value) is not ir.Block or type(value.scope) is not _Scope:
            return deeply(value)
        made = copy.copy(value)
        made.body = [copied(each) for each in value.body]
        return made

    inline_closurecall.copy = types.SimpleNamespace(**{**vars(copy), "deepcopy": deepcopy})


def _rewrite_in_silence() -> None:
    """Have Numba walk over the statements of a block without a record of each for a log that nobody keeps."""
    from numba.core import ssa

    if not hasattr(ssa, "_run_ssa_block_pass"):
        return

    def run_block(states: Any, block: Any, handler: Any) -> Any:
        for statement in block.body:
            if isinstance(statement, ir.Assign):
                yield handler.on_assign(states, statement)
            else:
                yield handler.on_other(states, statement)

    ssa._run_ssa_block_pass = run_block


def _say_errors_plainly() -> None:
    """Have Numba make the text of an error without setting up a terminal for it: it catches thousands of them."""
    from numba.core import errors

    scheme: Any = getattr(errors, "HighlightColorScheme", None)
    style: Any = getattr(errors, "Style", None)
    if not hasattr(scheme, "_markup") or style is None:
        return

    def markup(self: Any, msg: str, color: str | None = None, weight: str = style.BRIGHT) -> str:
        return f"{color or ''}{weight or ''}{msg}{style.RESET_ALL}"

    scheme._markup = markup


def _look_at_signatures_once() -> None:
    """Have Numba ask once whether a rule of its own takes the place in the source, not at each use of it."""
    from numba.core import base

    if hasattr(base, "_has_loc"):
        base._has_loc = functools.lru_cache(maxsize=4096)(base._has_loc)


_WITHOUT = {str, int, float, bool, type(None), ir.Loc, ir.Const, ir.Global, ir.FreeVar, ir.Arg}  # variables


def _gather(value: Any, found: list) -> None:
    """Append the variables in a value of Numba's code to `found`."""
    kind = type(value)
    if kind is ir.Var:
        found.append(value)
    elif kind in _WITHOUT:
        return
    elif isinstance(value, list | tuple):
        for each in value:
            _gather(each, found)
    elif isinstance(value, dict):
        for each in value.values():
            _gather(each, found)
    elif isinstance(value, ir.Inst):
        found.extend(value.list_vars())


def _list_variables() -> None:
    """Have Numba list the variables of a statement into one list, and look at types before it asks for classes."""
    if not hasattr(ir.Inst, "_rec_list_vars"):
        return

    def list_variables(self: Any, value: Any) -> list:
        found: list = []
        _gather(value, found)
        return found

    ir.Inst._rec_list_vars = list_variables


def _find_uses() -> None:
    """Have Numba list the variables of an assignment once, not twice, to find what blocks use and define."""
    from numba.core import analysis

    result: Any = getattr(analysis, "_use_defs_result", None)
    others: Any = getattr(analysis, "ir_extension_usedefs", None)
    if not hasattr(analysis, "compute_use_defs") or result is None or others is None:
        return

    def compute_use_defs(blocks: dict) -> Any:
        """Numba's own, by the same rules."""
        uses: dict[int, set[str]] = {}
        defines: dict[int, set[str]] = {}
        for at, block in blocks.items():
            used, defined = uses.setdefault(at, set()), defines.setdefault(at, set())
            for statement in block.body:
                found: list = []
                if type(statement) in others:
                    others[type(statement)](statement, used, defined)
                elif type(statement) is ir.Assign:
                    _gather(statement.value, found)
                    if all(each.name != statement.target.name for each in found):
                        defined.add(statement.target.name)
                else:
                    _gather(statement, found)
                used.update([each.name for each in found if each.name not in defined])
        return result(usemap=uses, defmap=defines)

    analysis.compute_use_defs = compute_use_defs


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


def _analyze_when_asked() -> None:
    """Have Numba find the lives of variables where one of its passes needs them, not after each of ten that may."""
    from numba.core import postproc, transforms

    worker: Any = getattr(postproc, "PostProcessor", None)
    names = ("run", "_insert_var_dels"), ("cfg", "usedefs", "deadmaps")
    lifetimes: Any = getattr(postproc, "VariableLifetime", None)
    if not all(hasattr(one, name) for one, each in zip((worker, lifetimes), names, strict=True) for name in each):
        return
    analyze, known = worker.run, ir.FunctionIR.get_block_entry_vars

    def run(self: Any, emit_dels: bool = False, extend_lifetimes: bool = False) -> None:
        code = self.func_ir
        if code.is_generator:
            return analyze(self, emit_dels, extend_lifetimes)
        code.blocks = transforms.canonicalize_cfg(code.blocks)
        code.variable_lifetime = lifetimes(code.blocks)  # each of its parts is found when it is read
        code.block_entry_vars, code.generator_info = {}, None
        if emit_dels:
            self._insert_var_dels(extend_lifetimes=extend_lifetimes)

    def get_block_entry_vars(self: Any, block: Any) -> set:
        if block not in self.block_entry_vars:
            analyze(postproc.PostProcessor(self))
        return known(self, block)

    worker.run = run
    ir.FunctionIR.get_block_entry_vars = get_block_entry_vars


def _optimize_bodies() -> None:
    """Have Numba optimize the functions of a module that have a body, not each name that it calls."""
    from numba.core import codegen

    library: Any = getattr(codegen, "CPUCodeLibrary", None)
    optimize = getattr(library, "_optimize_functions", None)
    if optimize is None:
        return

    def optimize_functions(self: Any, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout  # as Numba does
        bodies = [function for function in ll_module.functions if not function.is_declaration]
        optimize(self, types.SimpleNamespace(functions=bodies))

    library._optimize_functions = optimize_functions


def _raise_plainly() -> None:
    """Have Numba say that a part of an array cannot take values of another shape without the two shapes: the code that
    writes them took 4 s to compile, in each process with a kernel that assigns to `a[:, i]`.
    """
    from numba.core.extending import overload
    from numba.np import arrayobj

    if not hasattr(arrayobj, "raise_with_shape_context"):
        return

    def raise_shapes_differ(src_shapes: Any, index_shape: Any) -> None:
        raise NotImplementedError

    @overload(raise_shapes_differ)
    def plain(src_shapes: Any, index_shape: Any) -> Any:
        def implementation(src_shapes: Any, index_shape: Any) -> None:
            raise ValueError("cannot assign slice from input of different size")

        return implementation

    arrayobj.raise_with_shape_context = raise_shapes_differ


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
