"""Small faults that can be put into a Python module, one at a time: the mutants of its syntax tree.

    comparison   ``<`` becomes ``<=`` or ``>=``; ``==`` becomes ``!=``; ``in`` becomes ``not in``; and so on
    arithmetic   ``+`` and ``-``, ``*`` and ``/``, ``&`` and ``|`` change places; a power becomes a product
    sign         ``-x``, ``~x`` and ``not x`` become ``x``
    constant     an integer is one more or one less, a float twice as large, a truth value the other one
    logic        ``and`` and ``or`` change places; the condition of an ``if`` or ``while`` is negated
    result       ``return x`` becomes ``return None``, or, in functions that return numbers, ``return -x``
    statement    a call for its effect, an assignment into an object, ``x += y``, ``raise`` or ``continue`` is left out
    opposite     ``min`` and ``max``, ``any`` and ``all``, ``floor`` and ``ceil``, ``zeros`` and ``ones`` change places
    slice        a bound is one more

Left alone: docstrings, annotations, decorators, type aliases, what stands inside a ``raise`` or an f-string, calls of a
logger, and ``__repr__`` and ``__str__``: texts for people, and names for the type checker. And how much is held at
once: the bytes that ``row_slices`` and ``blocks`` are given, and constants named ``..._BYTES``. Results do not depend
on them, which tests show by changing the sizes of blocks.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
}
_PAIRS = (
    ("min", "max"),
    ("minimum", "maximum"),
    ("argmin", "argmax"),
    ("any", "all"),
    ("floor", "ceil"),
    ("zeros", "ones"),
    ("zeros_like", "ones_like"),
)
_BLOCKS = ("row_slices", "blocks")  # these say how many rows are held at once
_OPPOSITES = {a: b for pair in _PAIRS for a, b in (pair, pair[::-1])}
_NUMBERS = ("float", "int", "ndarray", "Floats", "Tensor")
_LOGGERS = ("logger", "_logger", "log", "_log", "logging", "warnings")


@dataclass(frozen=True)
class Mutant:
    """One fault: the ``variant``-th way to change the ``position``-th node of the tree."""

    position: int
    variant: int
    operator: str
    before: str
    after: str
    lines: tuple[int, int]
    """First and last line of the statement (of a compound one: its header) that is changed."""
    is_module_level: bool
    """Whether the statement runs when the module is imported."""

    @property
    def key(self) -> str:
        """A name that is unique within a module as long as the module does not change."""
        return f"{self.lines[0]}.{self.position}.{self.variant}"


def mutants_of(source: str) -> list[Mutant]:
    """All mutants of a module, in the order of its syntax tree."""
    tree = ast.parse(source)
    position = {id(node): i for i, node in enumerate(ast.walk(tree))}
    found = []
    for node, statement, function in _mutable(tree, None, None):
        body = getattr(statement, "body", None)
        last = body[0].lineno - 1 if body else cast(int, statement.end_lineno)
        lines = (statement.lineno, max(last, statement.lineno))
        for variant, (operator, replacement) in enumerate(_variants(node, function)):
            before, after = _shown(node), _shown(replacement)
            found.append(Mutant(position[id(node)], variant, operator, before, after, lines, function is None))
    return found


def mutated(source: str, mutant: Mutant) -> str:
    """The source of the module with this fault; comments are lost."""
    tree = ast.parse(source)
    target = next(node for i, node in enumerate(ast.walk(tree)) if i == mutant.position)
    function = next((f for _, _, f in _mutable_at(tree, target)), None)
    _, replacement = list(_variants(target, function))[mutant.variant]

    class Replace(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return replacement if node is target else self.generic_visit(node)

    changed = ast.fix_missing_locations(Replace().visit(tree))
    return ast.unparse(changed) + "\n"


def _mutable_at(tree: ast.AST, target: ast.AST) -> Iterator[_Place]:
    return (place for place in _mutable(tree, None, None) if place[0] is target)


_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Place = tuple[ast.AST, ast.stmt, _Function | None]


def _mutable(node: ast.AST, statement: ast.stmt | None, function: _Function | None) -> Iterator[_Place]:
    """Nodes that may be changed, each with its statement and the function in whose body it is."""
    if isinstance(node, ast.stmt):
        statement = node
    if _is_left_alone(node, function):
        return
    if statement is not None:
        yield node, statement, function
    if isinstance(node, ast.Raise | ast.JoinedStr):
        return
    called = _last_name(node.func) if isinstance(node, ast.Call) else ""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        if called in _BLOCKS and name == "keywords":
            continue
        if called == "row_slices" and name == "args":
            value = value[:1]  # the number of rows, which matters
        # Defaults belong to the header of a function, which runs where the function is defined.
        inner = node if isinstance(node, _Function) and name == "body" else function
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _mutable(child, statement, inner)


def _is_left_alone(node: ast.AST, function: _Function | None) -> bool:
    if isinstance(node, _Function):
        return node.name in ("__repr__", "__str__")
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant) or _root(node.value) in _LOGGERS
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    if isinstance(node, ast.Assign) and function is None:
        aliases = isinstance(node.value, ast.Subscript) or (
            isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.BitOr)
        )
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        return aliases or any(name == "__all__" or name.endswith("_BYTES") for name in names)
    return isinstance(node, ast.Import | ast.ImportFrom)


def _last_name(node: ast.expr) -> str:
    """``c`` of ``a.b.c``."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _root(node: ast.expr) -> str:
    """The name at the left end of ``a.b(c).d``."""
    while isinstance(node, ast.Call | ast.Attribute):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _variants(  # noqa: C901 - a table of shapes
    node: ast.AST, function: _Function | None
) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.Compare(ops=[op]):
            for other in _COMPARISONS[type(op)]:
                yield "comparison", _with(node, "ops", [other()])
        case ast.BinOp(op=op) | ast.AugAssign(op=op):
            if type(op) in _ARITHMETIC and not _is_text(node):
                yield "arithmetic", _with(node, "op", _ARITHMETIC[type(op)]())
            if isinstance(node, ast.AugAssign):
                yield "statement", ast.Pass()
        case ast.UnaryOp(op=ast.USub() | ast.Not() | ast.Invert(), operand=operand):
            yield "sign", operand
        case ast.BoolOp(op=op):
            yield "logic", _with(node, "op", ast.Or() if isinstance(op, ast.And) else ast.And())
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield "logic", _with(node, "test", ast.UnaryOp(ast.Not(), test))
        case ast.Constant(value=value):
            for changed in _other_constants(value):
                yield "constant", ast.Constant(changed)
        case ast.Return(value=ast.expr() as value):
            if not (isinstance(value, ast.Constant) and value.value is None):
                yield "result", ast.Return(ast.Constant(None))
                if function is not None and _returns_numbers(function):
                    yield "result", ast.Return(ast.UnaryOp(ast.USub(), value))
        case ast.Expr(value=ast.Call()) | ast.Raise() | ast.Continue() | ast.Break():
            yield "statement", ast.Pass()
        case ast.Assign(targets=[ast.Subscript() | ast.Attribute()]):
            yield "statement", ast.Pass()
        case ast.Call(func=ast.Name(id=name)) if name in _OPPOSITES:
            yield "opposite", _with(node, "func", ast.Name(_OPPOSITES[name], ast.Load()))
        case ast.Call(func=ast.Attribute(attr=name) as attribute) if name in _OPPOSITES:
            yield "opposite", _with(node, "func", _with(attribute, "attr", _OPPOSITES[name]))
        case ast.Slice(lower=lower, upper=upper):
            if lower is not None or upper is not None:
                more = ast.Constant(1) if lower is None else ast.BinOp(lower, ast.Add(), ast.Constant(1))
                yield "slice", _with(node, "lower", more)
            if upper is not None:
                yield "slice", _with(node, "upper", ast.BinOp(upper, ast.Add(), ast.Constant(1)))


def _other_constants(value: object) -> tuple[bool | int | float, ...]:
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, int):
        return (value + 1, value - 1)
    if isinstance(value, float):
        return (2.0 * value if value else 1.0,)
    return ()


def _is_text(node: ast.BinOp | ast.AugAssign) -> bool:
    parts = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.value]
    return any(
        isinstance(part, ast.JoinedStr) or (isinstance(part, ast.Constant) and isinstance(part.value, str))
        for part in parts
    )


def _returns_numbers(function: _Function) -> bool:
    kind = function.returns
    name = kind.attr if isinstance(kind, ast.Attribute) else kind.id if isinstance(kind, ast.Name) else ""
    return name in _NUMBERS


def _with(node: ast.AST, field: str, value: object) -> ast.AST:
    changed = copy.copy(node)
    setattr(changed, field, value)
    return changed


def _shown(node: ast.AST) -> str:
    """One line of source, short."""
    unparse: Callable[[ast.AST], str] = ast.unparse
    return unparse(ast.fix_missing_locations(copy.deepcopy(node))).splitlines()[0][:100]
