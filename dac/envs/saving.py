"""The state of a Python environment, read from its attributes and put back into another one of the same make.

Gymnasium has no way to read an environment's state. But most environments are plain data in plain objects: numbers,
arrays, lists, generators, MuJoCo's data and what an episode changes in its model. `capture` walks these objects from
wrapper to wrapper and writes down what it finds as JSON; `restore` walks the same objects of another environment, which
has to be of the same make, and puts the values there. Nothing is executed that was read from a file.

What is no plain data (a window, a physics engine in C++) is left as it is. Whether anything that matters was left is
not decided by looking: `try_saving` in `checked.py` captures an environment in the middle of an episode, restores
another one, and compares what both do next, to the bit.
"""

from __future__ import annotations

import base64
import collections
import contextlib
import enum
import json
import random
import sys
import types
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from dac.core.errors import UsageError

Node = list[Any]
"""A value as JSON: its kind, then what is known of it."""
NUMBERS = "biufc"
"""Kinds of NumPy's numbers: bool, int, unsigned, float, complex."""
GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
"""NumPy's bit generators."""
LARGEST = 16 * 2**20
"""Bytes of a captured environment beyond which it is not to be saved."""
MOST = 100_000
"""Objects of an environment beyond which it is not to be saved."""
BIG = 2**16
"""Bytes of an array beyond which it is written down only if it has changed: a table, a terrain, a mesh."""
NEVER = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType, type)
"""What is the same in every environment of a make, and no data."""
FOREIGN = {"jax", "jaxlib", "torch", "tensorflow", "matplotlib", "pygame", "glfw", "OpenGL", "imageio", "pandas"}
"""Packages whose objects are no plain data inside; neither are those of Python's own library."""
MISSING = object()


class CannotSave(UsageError):
    """An environment has something that can be neither saved nor left out."""


class Capturer:
    """Writes down the plain data of an environment; made when the environment is new."""

    def __init__(self, env: Any):
        """Remember big arrays and MuJoCo's models as they were made, of which only changes are written down."""
        self._env = env
        self._made: dict[int, tuple[Any, dict[str, int]]] = {}
        for value in _reach(env):
            if _is_mujoco(value, "MjModel"):
                self._made[id(value)] = value, {name: _checksum(array) for name, array in _arrays(value)}
            elif isinstance(value, np.ndarray) and value.nbytes > BIG and value.dtype.kind in NUMBERS:
                self._made[id(value)] = value, {"": _checksum(value)}

    def capture(self) -> bytes:
        """Return everything of the environment that is plain data."""
        written = _Writer(self._made).write(self._env)
        packed = zlib.compress(json.dumps(written, separators=(",", ":")).encode(), 1)
        if len(packed) > LARGEST:
            raise CannotSave(f"its state has {len(packed) / 2**20:.0f} MiB, more than {LARGEST // 2**20}")
        return packed

    def restore(self, packed: bytes) -> None:
        """Put what another environment of the same make was captured with into this one."""
        _Reader().read(json.loads(zlib.decompress(packed)), self._env, "env")


class _Writer:
    """One walk; an object that is met again is written as a reference to the first time."""

    def __init__(self, made: dict[int, tuple[Any, dict[str, int]]]):
        self._made = made
        self._seen: dict[int, int] = {}
        self._kept: list[Any] = []  # so that no address is used twice

    def write(self, value: Any) -> Node:
        if value is None or (isinstance(value, bool | int | float | str) and type(value).__module__ == "builtins"):
            return ["value", value]
        if isinstance(value, np.generic):
            return ["number", value.dtype.str, _encode(value)] if value.dtype.kind in NUMBERS else ["opaque"]
        if isinstance(value, NEVER):
            return ["opaque"]
        if id(value) in self._seen:
            return ["again", self._seen[id(value)]]
        kind = self._kind(value)
        if kind is None:
            return ["opaque"]
        if kind == "array" and self._made.get(id(value), (None, {}))[1].get("") == _checksum(value):
            return ["opaque"]
        if len(self._seen) >= MOST:
            raise CannotSave(f"it has more than {MOST:,} objects")
        self._seen[id(value)] = len(self._seen)
        self._kept.append(value)
        return [kind, *getattr(self, f"_{kind}")(value)]

    def _kind(self, value: Any) -> str | None:
        """How a value is written that may be met again; None for what is no data."""
        exact: dict[type, str] = {list: "list", tuple: "tuple", set: "set", dict: "dict", collections.deque: "deque"}
        if type(value) in exact:
            return exact[type(value)]
        if isinstance(value, np.ndarray):
            plain = type(value) is np.ndarray and value.dtype.kind in NUMBERS and not _foreign(value)
            return "array" if plain else None
        if isinstance(value, enum.Enum):
            return "enum"
        if isinstance(value, np.random.Generator):
            return "generator" if type(value.bit_generator).__name__ in GENERATORS else None
        if isinstance(value, np.random.RandomState):
            return "legacy"
        if type(value) is random.Random:
            return "python_random"
        if _is_mujoco(value, "MjData"):
            return "mjdata"
        if _is_mujoco(value, "MjModel"):
            return "mjmodel"
        return "object" if _is_plain(value) else None

    def _list(self, value: Any) -> Iterator[Any]:
        yield [self.write(item) for item in value]

    _tuple = _deque = _list

    def _set(self, value: set) -> Iterator[Any]:
        yield [self.write(item) for item in sorted(value, key=repr)]

    def _dict(self, value: dict) -> Iterator[Any]:
        yield [[self.write(key), self.write(item)] for key, item in value.items()]

    def _array(self, value: np.ndarray) -> tuple[Any, ...]:
        return value.dtype.str, list(value.shape), _encode(value)

    def _enum(self, value: enum.Enum) -> tuple[Any, ...]:
        return (value.name,)

    def _generator(self, value: np.random.Generator) -> tuple[Any, ...]:
        return (self.write(value.bit_generator.state),)

    def _legacy(self, value: np.random.RandomState) -> tuple[Any, ...]:
        return (self.write(value.get_state(legacy=False)),)

    def _python_random(self, value: random.Random) -> tuple[Any, ...]:
        return (self.write(value.getstate()),)

    def _mjdata(self, value: Any) -> tuple[Any, ...]:
        """What MuJoCo integrates, and every array that it has computed: some are a substep behind until the next."""
        return (value.time, {name: self._array(array) for name, array in _arrays(value)})

    def _mjmodel(self, value: Any) -> tuple[Any, ...]:
        if id(value) not in self._made:
            raise CannotSave("it makes new models of MuJoCo as it goes")
        before = self._made[id(value)][1]
        return ({name: self._array(array) for name, array in _arrays(value) if _checksum(array) != before[name]},)

    def _object(self, value: Any) -> tuple[Any, ...]:
        return type(value).__qualname__, {name: self.write(item) for name, item in vars(value).items()}


class _Reader:
    """One walk through the same objects of another environment."""

    def __init__(self) -> None:
        self._found: list[Any] = []

    def read(self, node: Node, target: Any, where: str) -> Any:
        """Return what belongs where `target` is: a new value, or the target itself with its contents replaced."""
        kind, *rest = node
        if kind == "opaque":
            return target
        if kind == "value":
            return rest[0]
        if kind == "number":
            return np.frombuffer(base64.b64decode(rest[1]), rest[0])[0]
        if kind == "again":
            return self._found[rest[0]]
        place = len(self._found)
        self._found.append(None)
        if kind in ("object", "mjdata", "mjmodel"):
            self._found[place] = target  # before its contents, which may lead back to it
        self._found[place] = found = getattr(self, f"_{kind}")(rest, target, where)
        return found

    def _items(self, nodes: list[Node], target: Any, where: str) -> list[Any]:
        """Read the items of a container; those that are no plain data stay the target's."""
        there = list(target) if isinstance(target, list | tuple | collections.deque) else []
        there += [MISSING] * (len(nodes) - len(there))
        return [self._item(node, there[i], f"{where}[{i}]") for i, node in enumerate(nodes)]

    def _item(self, node: Node, target: Any, where: str) -> Any:
        if target is MISSING and node[0] in ("opaque", "object", "mjdata", "mjmodel"):
            raise CannotSave(f"{where} is there only from some time on")
        return self.read(node, None if target is MISSING else target, where)

    def _list(self, rest: Node, target: Any, where: str) -> list:
        return self._items(rest[0], target, where)

    def _tuple(self, rest: Node, target: Any, where: str) -> tuple:
        return tuple(self._items(rest[0], target, where))

    def _deque(self, rest: Node, target: Any, where: str) -> collections.deque:
        return collections.deque(self._items(rest[0], target, where), getattr(target, "maxlen", None))

    def _set(self, rest: Node, target: Any, where: str) -> set:
        return set(self._items(rest[0], (), where))

    def _dict(self, rest: Node, target: Any, where: str) -> dict:
        there, found = target if isinstance(target, dict) else {}, {}
        for key_node, node in rest[0]:
            key = self._item(key_node, MISSING, f"a key of {where}")
            found[key] = self._item(node, there.get(key, MISSING), f"{where}[{key!r}]")
        return found

    def _enum(self, rest: Node, target: Any, where: str) -> Any:
        if not isinstance(target, enum.Enum):
            raise CannotSave(f"{where} is a {type(target).__qualname__} and was one of an enumeration")
        return type(target)[rest[0]]

    def _array(self, rest: Node, target: Any, where: str) -> np.ndarray:
        return _decode(*rest)

    def _generator(self, rest: Node, target: Any, where: str) -> np.random.Generator:
        state = self.read(rest[0], None, where)
        if state["bit_generator"] not in GENERATORS:
            raise CannotSave(f"{where} is no generator of NumPy's")
        bits = getattr(np.random, state["bit_generator"])()
        bits.state = state
        return np.random.Generator(bits)

    def _legacy(self, rest: Node, target: Any, where: str) -> np.random.RandomState:
        found = np.random.RandomState()
        found.set_state(self.read(rest[0], None, where))
        return found

    def _python_random(self, rest: Node, target: Any, where: str) -> random.Random:
        found = random.Random()
        found.setstate(self.read(rest[0], None, where))
        return found

    def _mjdata(self, rest: Node, target: Any, where: str) -> Any:
        target.time = rest[0]
        _write_arrays(rest[1], target, where)
        return target

    def _mjmodel(self, rest: Node, target: Any, where: str) -> Any:
        _write_arrays(rest[0], target, where)
        return target

    def _object(self, rest: Node, target: Any, where: str) -> Any:
        name, attributes = rest
        if type(target).__qualname__ != name:
            raise CannotSave(f"{where} is a {type(target).__qualname__} and was a {name}")
        there = vars(target)
        for attribute in [a for a, value in there.items() if a not in attributes and not hasattr(value, "__dict__")]:
            del there[attribute]  # it did not exist yet
        for attribute, node in attributes.items():
            there[attribute] = self._item(node, there.get(attribute, MISSING), f"{where}.{attribute}")
        return target


def _encode(value: Any) -> str:
    return base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()


def _decode(dtype: str, shape: list[int], data: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(data), dtype).reshape(shape).copy()


def _foreign(array: np.ndarray) -> bool:
    """Whether the numbers belong to something else than NumPy, such as MuJoCo, whose they are to write."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return not (array.base is None or isinstance(array.base, bytes | bytearray | memoryview))


def _arrays(owner: Any) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays of MuJoCo's data or model that can be written and have the same size in every environment."""
    for name in dir(type(owner)):
        if name.startswith(("_", "contact", "efc_", "iefc_", "island_", "dof_island", "tree_island")):
            continue  # contacts and constraints are found anew in every step
        array = getattr(owner, name, None)
        if isinstance(array, np.ndarray) and array.dtype.kind in NUMBERS and array.flags.writeable and array.size:
            yield name, array


def _write_arrays(nodes: dict[str, Node], target: Any, where: str) -> None:
    for name, node in nodes.items():
        there, saved = getattr(target, name), _decode(*node)
        if there.shape == saved.shape:
            there[...] = saved
        elif name in ("qpos", "qvel", "act", "ctrl"):
            raise CannotSave(f"{where}.{name} has another size")


def _checksum(array: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(array).tobytes())


def _is_mujoco(value: Any, kind: str) -> bool:
    mujoco = sys.modules.get("mujoco")
    return mujoco is not None and isinstance(value, getattr(mujoco, kind))


def _is_plain(value: Any) -> bool:
    """Whether an object's attributes are looked at."""
    if isinstance(value, NEVER) or not isinstance(getattr(value, "__dict__", None), dict):
        return False
    package = type(value).__module__.partition(".")[0]
    return package not in FOREIGN and (package == "__main__" or package not in sys.stdlib_module_names)


def _reach(value: Any) -> Iterator[Any]:
    """Everything that a walk meets, once."""
    seen, ahead = {id(value)}, [value]
    while ahead and len(seen) < MOST:
        now = ahead.pop()
        yield now
        inside: Any = ()
        if isinstance(now, dict):
            inside = now.values()
        elif isinstance(now, list | tuple | collections.deque):
            inside = now
        elif _is_plain(now):
            inside = vars(now).values()
        for item in inside:
            if id(item) not in seen:
                seen.add(id(item))
                ahead.append(item)


@contextlib.contextmanager
def same_global_randomness() -> Iterator[None]:
    """Leave the random numbers that everything in the process shares as they were."""
    numpys, pythons = np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(numpys)  # noqa: NPY002
        random.setstate(pythons)
