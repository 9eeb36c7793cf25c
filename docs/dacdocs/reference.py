"""The API reference, read from the code: signatures as they are written, the strings under them, and what lacks one.

Signatures are taken from the source and not from the running objects, so that an annotation such as
`Float[Array, "batch obs"]` and a default such as `jax.nn.relu` stand as the author wrote them, and the string under a
field of an Equinox module is found, which Python throws away. Docstrings are Markdown, as this documentation is.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import inspect
import pkgutil
import textwrap
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

PAGES: dict[str, list[str]] = {
    "dac": ["dac"],
    "algorithms": [
        "dac.algorithms.base",
        "dac.algorithms.bonuses.base",
        "dac.algorithms.metrics.base",
        "dac.algorithms",
    ],
    "watchers": ["dac.training.watchers", "dac.training.watchers.*"],
    "environments": ["dac.envs.base", "dac.envs.wrappers"],
    "tasks": ["dac.tasks.registry", "dac.tasks.presets"],
    "networks": ["dac.core.architectures.base", "dac.core.architectures", "dac.core.networks"],
    "entropy": ["dac.core.entropy", "dac.core.types", "dac.core.spec"],
}
"""The modules of each page of the reference; a star stands for every module of a package."""


@dataclasses.dataclass(frozen=True)
class Item:
    """A public name: what it is, how it is called, and the text under it."""

    name: str
    kind: str
    """A directive of Sphinx's Python domain: function, class, method, property, attribute, data, exception, module."""
    signature: str = ""
    text: str = ""
    options: tuple[str, ...] = ()
    inside: tuple[Item, ...] = ()

    def undocumented(self, above: str = "") -> Iterator[str]:
        """Name what has no text, here and inside."""
        name = f"{above}{self.name}"
        if not self.text.strip():
            yield name
        for item in self.inside:
            yield from item.undocumented(f"{name}." if self.kind != "module" else "")

    def markdown(self, depth: int = 5) -> str:
        """Return the directive that Sphinx draws, in MyST's Markdown."""
        fence = ":" * (depth + 2)
        head = f"{fence}{{py:{self.kind}}} {self.name}{self.signature}"
        parts = [*map(quoted, self.options), "", fenced(self.text), ""]
        parts += [item.markdown(depth - 1) for item in self.inside]
        return "\n".join([head, *parts, fence, ""])


def quoted(option: str) -> str:
    """Return an option of a directive, its value in quotes, since MyST reads options as YAML."""
    name, colon, value = option.partition(": ")
    return f":{name}: '" + value.replace("'", "''") + "'" if colon else f":{name}:"


def fenced(text: str) -> str:
    """Return a docstring with fences around its indented blocks, marked as Python where they are."""
    blocks = []
    for block in text.split("\n\n"):
        if block.startswith("    "):
            code = textwrap.dedent(block)
            try:
                ast.parse(code)
                language = "python"
            except SyntaxError:
                language = "text"
            block = f"```{language}\n{code}\n```"
        blocks.append(block)
    return "\n\n".join(blocks)


def reference(page: str) -> str:
    """Return every public name of one page of the reference."""
    sections: list[str] = []
    seen: list[Any] = []
    for name in modules(page):
        module, body = importlib.import_module(name), ""
        for item in public(module):
            value = getattr(module, item.name.split(".")[-1])
            if item.kind == "data" or value not in seen:  # what a package passes on stands once on a page
                body += item.markdown() + "\n"
            seen += [] if item.kind == "data" else [value]
        sections.append(f"## `{name}`\n\n{fenced(inspect.getdoc(module) or '')}\n\n{body}")
    return "\n\n".join(sections)


def modules(page: str) -> list[str]:
    """Return the modules of one page, and those of `dac` that are public names themselves."""
    names = []
    for name in PAGES[page]:
        if name.endswith(".*"):
            package = importlib.import_module(name.removesuffix(".*"))
            below = pkgutil.iter_modules(package.__path__, package.__name__ + ".")
            names += [found.name for found in below if not found.name.split(".")[-1].startswith("_")]
        else:
            names.append(name)
            module = importlib.import_module(name)
            names += [getattr(module, n).__name__ for n in exported(module) if inspect.ismodule(getattr(module, n))]
    return names


def public(module: ModuleType) -> list[Item]:
    """Return the public names of a module, in the order in which they are written."""
    items = []
    for name in exported(module):
        value = getattr(module, name)
        if not inspect.ismodule(value):
            items.append(describe(module, name, value))
    return items


def exported(module: ModuleType) -> list[str]:
    """Return `__all__`, or else what the module defines or passes on as `import x as x`, private names left out."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    names = []
    for node in tree(module).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.ImportFrom):
            names += [alias.asname for alias in node.names if alias.asname == alias.name]
        else:
            names += [target for target, value in assigned(node) if not is_type_variable(value)]
    return [name for name in dict.fromkeys(names) if name and not name.startswith("_")]


@functools.cache
def tree(module: ModuleType) -> ast.Module:
    return ast.parse(inspect.getsource(module))


def assigned(node: ast.stmt) -> list[tuple[str, ast.expr | None]]:
    """Return the plain names that a statement binds, with the value."""
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [(node.target.id, node.value)]
    if isinstance(node, ast.Assign):
        return [(target.id, node.value) for target in node.targets if isinstance(target, ast.Name)]
    return []


def is_type_variable(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "TypeVar"


def home(module: ModuleType, name: str) -> tuple[ModuleType, str]:
    """Return where a name is written: the module itself, or the one it is imported from."""
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                if (alias.asname or alias.name) == name and node.module.split(".")[0] == "dac":
                    return home(importlib.import_module(node.module), alias.name)
    return module, name


def describe(module: ModuleType, name: str, value: Any) -> Item:
    """Return what a module's name stands for."""
    full, (origin, original) = f"{module.__name__}.{name}", home(module, name)
    for node, text in with_texts(tree(origin).body):
        for target, expression in assigned(node):
            if target == original:
                return Item(full, "data", text=text or "", options=constant(node, expression, value))
    if inspect.isclass(value):
        return describe_class(full, value)
    return Item(full, "function", signature(value), inspect.getdoc(value) or "")


def constant(node: ast.stmt, expression: ast.expr | None, value: Any) -> tuple[str, ...]:
    """Return the options that show the type and, where it is short, the value of a constant."""
    options = []
    if isinstance(node, ast.AnnAssign) and (kind := written(node.annotation)) != "TypeAlias":
        options.append(f"type: {kind}")
    if expression is not None and len(text := written(expression)) <= 60:
        options.append(f"value: {text}")
    elif isinstance(value, str):
        options.append(f"value: {value}")
    return tuple(options)


def with_texts(body: list[ast.stmt]) -> Iterator[tuple[ast.stmt, str | None]]:
    """Return every statement with the string that stands under it, if one does."""
    for node, following in zip(body, [*body[1:], None], strict=True):
        value = following.value if isinstance(following, ast.Expr) else None
        is_text = isinstance(value, ast.Constant) and isinstance(value.value, str)
        yield node, inspect.cleandoc(value.value) if is_text else None


def written(node: ast.expr) -> str:
    """Return an expression as it is written, with double quotes."""
    return ast.unparse(node).replace("'", '"')


def definition(value: Any) -> Any:
    """Return the syntax tree of a function or a class."""
    return ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(value)))).body[0]


def signature(function: Any, *, method: bool = False) -> str:
    """Return arguments and result of a function as they are written, for a method without `self`."""
    node = definition(function)
    if method and not any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in node.decorator_list):
        (node.args.posonlyargs or node.args.args).pop(0)
    result = "" if node.returns is None else f" -> {written(node.returns)}"
    return f"({written(node.args)}){result}"


def describe_class(full: str, value: type) -> Item:
    """Return a class with its fields and methods, and those of the bases that have no place of their own."""
    sources = [c for c in value.__mro__ if c is value or (in_package(c) and c not in documented())]
    fields: dict[str, Item] = {}
    methods: dict[str, Item] = {}
    for owner in reversed(sources):
        fields |= {item.name: item for item in fields_of(owner)}
        methods |= {item.name: item for item in methods_of(owner, value)}
    arguments, explained = "", ""
    for owner in filter(in_package, value.__mro__):
        if inspect.isfunction(init := owner.__dict__.get("__init__")) and "__init__" in defined(owner):
            arguments = signature(init, method=True).removesuffix(" -> None")
            explained = init.__doc__ or "" if owner in sources else ""
            break
    inside = [*fields.values(), *methods.values()]
    if issubclass(value, BaseException):
        inside = [item for item in inside if item.text]
    kind = "exception" if issubclass(value, BaseException) else "class"
    text = value.__dict__.get("__doc__") or ""
    if dataclasses.is_dataclass(value) and text.startswith(f"{value.__name__}("):  # made by dataclasses
        text = ""
    above = [base.__name__ for base in value.__mro__[1:] if base in documented() and in_package(base)]
    if text:
        more = [inspect.cleandoc(explained), f"Has all that `{'`, `'.join(above)}` has." if above else ""]
        text = "\n\n".join([inspect.cleandoc(text), *filter(None, more)])
    return Item(full, kind, arguments, text, inside=tuple(inside))


def in_package(value: type) -> bool:
    return value.__module__.split(".")[0] == "dac"


@functools.cache
def documented() -> frozenset[type]:
    """Return every class that stands somewhere in the reference."""
    found = set()
    for page in PAGES:
        for name in modules(page):
            module = importlib.import_module(name)
            found |= {v for n in exported(module) if inspect.isclass(v := getattr(module, n))}
    return frozenset(found)


@functools.cache
def defined(owner: type) -> dict[str, ast.stmt]:
    """Return the statements of a class body by the name they bind."""
    found: dict[str, ast.stmt] = {}
    for node in definition(owner).body:
        for name in [node.name] if isinstance(node, ast.FunctionDef) else [n for n, _ in assigned(node)]:
            found[name] = node
    return found


def fields_of(owner: type) -> Iterable[Item]:
    """Return the fields that a class declares with a type, each with its default and the string under it."""
    for node, text in with_texts(definition(owner).body):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name) or node.target.id[0] == "_":
            continue
        name, options = node.target.id, [f"type: {written(node.annotation)}"]
        field = {f.name: f for f in dataclasses.fields(owner)}.get(name) if dataclasses.is_dataclass(owner) else None
        if field is not None and isinstance(field.default, bool | int | float | str | tuple):
            options.append(f"value: {field.default!r}".replace("'", '"'))
        yield Item(name, "attribute", text=text or "", options=tuple(options))


def methods_of(owner: type, value: type) -> Iterable[Item]:
    """Return the public methods and properties that a class defines; a text may be inherited.

    A property of a base class that is a field of the class in question is left to its fields.
    """
    fields = {field.name for field in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else set()
    for name, node in defined(owner).items():
        if not isinstance(node, ast.FunctionDef) or (name.startswith("_") and name != "__call__") or name in fields:
            continue
        found = inspect.getattr_static(owner, name)
        text = inspect.getdoc(getattr(value, name)) if not isinstance(found, property) else inspect.getdoc(found)
        if isinstance(found, property):
            text = text or next((t for c in owner.__mro__ if (t := inspect.getdoc(c.__dict__.get(name)))), "")
            kind = f"type: {written(node.returns)}" if node.returns is not None else ""
            yield Item(name, "property", text=text or "", options=(kind,) if kind else ())
            continue
        function = found.__func__ if isinstance(found, classmethod | staticmethod) else found
        options = ("classmethod",) if isinstance(found, classmethod) else ()
        options = ("staticmethod",) if isinstance(found, staticmethod) else options
        yield Item(name, "method", signature(function, method=True), text or "", options)


def undocumented() -> list[str]:
    """Name every public thing of the reference that has no text."""
    missing = []
    for page in PAGES:
        for name in modules(page):
            module = importlib.import_module(name)
            if not inspect.getdoc(module):
                missing.append(name)
            missing += [found for item in public(module) for found in item.undocumented()]
    return list(dict.fromkeys(missing))
