"""Public docstrings say what a thing is, what goes in and what comes out; classes and functions show an example.

``test_docs.py`` runs the examples.
"""

import ast
import inspect
import itertools
import re
import textwrap
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

import coresift

ROOMS = ("", "coresets", "data", "selection", "training")
# methods with scikit-learn's meaning: these arguments, and the result, need no words
SKLEARN = {
    *("fit", "partial_fit", "predict", "predict_proba", "decision_function", "score", "transform"),
    *("get_feature_names_out", "get_metadata_routing"),
}
SKLEARN_ARGUMENTS = {"X", "y", "sample_weight", "input_features"}
HOOKS = {"on_epoch_end", "on_log", "on_train_epoch_end"}  # their arguments belong to transformers and Lightning
REFERENCE = re.compile(r":(?:func|meth|class):`~?(?:coresift\.)?([\w.]+)`")
# The first words of a docstring whose object is the result ("Draw a coreset"), or a noun phrase that names it.
SAYS_RESULT = re.compile(
    r"(Compute|Draw|List|Load|Look up|Make|Open|Read|Select|Return|Yield)\b"
    r"|(A|All|An|Everything|Figures|Gradients|How|Inner|Inputs|Last-layer|Mean|Names?|Number|Numbers|Position|Positions"
    r"|Routing|Scores|Squared|Strategies|Sum|The|What|Whether|Which)\b"
)


def public() -> Iterator[tuple[str, Any]]:
    """Public classes and functions, and the methods and properties that they define."""
    seen = set()
    for room in ROOMS:
        module = getattr(coresift, room) if room else coresift
        for name in module.__all__:
            found = getattr(module, name)
            if id(found) in seen or not (inspect.isclass(found) or inspect.isfunction(found)):
                continue
            seen.add(id(found))
            yield name, found
            for method in dir(found) if inspect.isclass(found) else ():
                member = inspect.getattr_static(found, method)
                function = getattr(member, "__func__", getattr(member, "fget", member))
                ours = (getattr(function, "__module__", None) or "").startswith("coresift")
                if ours and not method.startswith("_") and inspect.isfunction(function) and id(function) not in seen:
                    seen.add(id(function))
                    yield f"{name}.{method}", member


PUBLIC = dict(public())


def docstring(name: str) -> str:
    """The docstring, of a class together with those of its bases, its fields and its constructor."""
    owner, _, method = name.partition(".")
    thing = PUBLIC.get(owner)
    if not inspect.isclass(thing) or method:
        return inspect.getdoc(getattr(thing, method, None) if method else thing) or ""
    ours = [base for base in thing.__mro__ if base.__module__.startswith("coresift")]
    texts = [text for base in ours for text in (base.__doc__, vars(base).get("__init__", base).__doc__) if text]
    return "\n".join([*map(inspect.cleandoc, texts), *(f"``{field}``" for base in ours for field in described(base))])


def described(kind: type) -> Iterator[str]:
    """Fields of a dataclass with a docstring of their own, or with a help text."""
    if not is_dataclass(kind):
        return
    yield from (field.name for field in fields(kind) if "help" in field.metadata)
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0].body
    for before, after in itertools.pairwise(body):
        if isinstance(before, ast.AnnAssign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            yield before.target.id


def has_name(parameter: str, text: str) -> bool:
    """Whether the text has the parameter in double backticks, or as an entry of a section."""
    entry = rf"^\s*(\*{{0,2}}\w+, )*\*{{0,2}}{parameter}\b(, \*{{0,2}}\w+)*( ?:|$)"
    return re.search(rf"``\*{{0,2}}{parameter}\b|{entry}", text, re.MULTILINE) is not None


def signature(name: str) -> inspect.Signature | None:
    thing = PUBLIC[name]
    if isinstance(thing, property) or (inspect.isclass(thing) and issubclass(thing, Exception)):
        return None
    return inspect.signature(getattr(thing, "__func__", thing))


@pytest.mark.parametrize("name", PUBLIC)
def test_docstrings_name_every_parameter(name: str) -> None:
    text = docstring(name)
    assert text.strip()
    assert not text.startswith(f"{name}("), "made by dataclass"
    method = name.split(".")[-1]
    known = {"self", "cls", *(SKLEARN_ARGUMENTS if method in SKLEARN else ())}
    own = f"{name.split('.')[0]}."
    texts = [text, *(docstring(found) for other in REFERENCE.findall(text) for found in (other, own + other))]
    parameters = getattr(signature(name), "parameters", {}) if method not in HOOKS and name != "Strategy" else {}
    missing = [p for p in parameters if p not in known and p[0] != "_" and not any(has_name(p, t) for t in texts)]
    assert missing == []


@pytest.mark.parametrize("name", [name for name, thing in PUBLIC.items() if not inspect.isclass(thing)])
def test_docstrings_say_what_is_returned(name: str) -> None:
    found = signature(name)
    if found is None or name.split(".")[-1] in SKLEARN:
        return
    result = str(found.return_annotation)
    if result not in ("None", "Self", "typing.Self") and not result.endswith("Iterator[None]"):
        text = docstring(name)
        assert SAYS_RESULT.match(text) or re.search(r"\b([Rr]eturn(s|ed)?|[Yy]ields?)\b", text), (
            f"{result}: {text[:90]}"
        )


@pytest.mark.parametrize("name", [name for name in PUBLIC if "." not in name])
def test_classes_and_functions_have_an_example(name: str) -> None:
    assert ">>> " in docstring(name) or issubclass(PUBLIC[name], Exception)


def test_a_docstring_that_says_nothing_would_fail() -> None:
    assert len(PUBLIC) > 250
    assert has_name("budget", "Choose ``budget`` rows.")
    assert has_name("rng", "Parameters\n----------\nseed, rng : int\n    Seeds.")
    assert not has_name("budget", "Choose rows within the budget.")
    assert not SAYS_RESULT.match("Prove a bound.")
