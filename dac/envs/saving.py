"""The state of a Python environment, read from its attributes and put back into another one of the same make.

Gymnasium has no way to read an environment's state. But most environments are plain data in plain objects: numbers,
arrays, lists, generators, MuJoCo's data and what an episode changes in its model. `capture` walks these objects from
wrapper to wrapper and writes down what it finds as JSON; `restore` walks the same objects of another environment, which
has to be of the same make, and puts the values there. Nothing is executed that was read from a file.

Three rules keep it honest. What is no plain data (a socket, an engine in C++, an open file) is refused by name, not
left out. An attribute that is as it was when the environment was made is not written, but put back to what it was
there: paths, ports and keys belong to a process. And objects are replaced by changed copies, for they may be shared by
the whole process; only environments, wrappers and MuJoCo's own objects are changed in place.

Whether all of that is enough is not decided by looking: `try_saving` in `checked.py` captures an environment in the
middle of an episode, restores another one, and compares what both do next, to the bit. Not saved are MuJoCo's contacts,
which it finds anew in every step.
"""

from __future__ import annotations

import base64
import collections
import contextlib
import datetime
import decimal
import enum
import fractions
import json
import logging
import pathlib
import random
import re
import sys
import types
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec

from dac.envs.host import CannotSave

Node = list[Any]
"""A value as JSON: its kind, then what is known of it."""
Made = dict[tuple[int, str], Any]
"""What plain attributes were when an environment was made, by the object's address and the attribute's name."""
FIXED_SIZE = "biufcmMSU"
"""Kinds of NumPy's numbers, times and strings, which hold no objects."""
GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
"""NumPy's bit generators."""
LARGEST = 16 * 2**20
"""Bytes of a captured environment beyond which it is not to be saved."""
MOST = 100_000
"""Values in an environment beyond which it is not to be saved."""
BIG = 2**16
"""Bytes of an array beyond which it is written down only if it has changed: a table, a terrain, a mesh."""
HUGE = 2**26
"""Bytes of an array that is not even looked through for changes."""
SCALARS = (type(None), bool, int, float, str)
DICTIONARIES = (dict, collections.OrderedDict, collections.Counter, collections.defaultdict)
EXACT: dict[type, str] = {
    **dict.fromkeys(DICTIONARIES, "dict"),
    list: "list",
    tuple: "tuple",
    set: "set",
    frozenset: "frozenset",
    collections.deque: "deque",
    bytes: "bytes",
    complex: "complex",
    random.Random: "python_random",
}
"""Types that are written, but not what derives from them."""
CODE = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type, np.ufunc)
"""What is the same in every process: it has to have the same name in both environments."""
TIMES = (datetime.date, datetime.time, datetime.timedelta)
CONSTANTS = (np.dtype, re.Pattern, pathlib.PurePath, range, slice, decimal.Decimal, fractions.Fraction, *TIMES)
"""What cannot change, and is not written: it has to look the same in both environments."""
SHARED = (logging.Logger, EnvSpec)
"""What belongs to the process, or describes the make: left as it is."""
FOREIGN = {"jax", "jaxlib", "torch", "tensorflow", "matplotlib", "pygame", "glfw", "OpenGL", "imageio", "pandas"}
"""Packages whose objects are no plain data inside; neither are those of Python's own library."""
WRITTEN_IN_PYTHON = 1 << 9
"""The flag of a class that a `class` statement made (Py_TPFLAGS_HEAPTYPE)."""
MISSING = object()


class Capturer:
    """Writes down the plain data of an environment; made when the environment is new."""

    def __init__(self, env: Any):
        """Remember plain attributes and big arrays as they were made."""
        self._env = env
        self._made: Made = {}
        self._big: dict[int, tuple[np.ndarray, int]] = {}
        self._kept: list[Any] = []  # so that no address is used twice
        for value in _reach(env):
            if _is_plain(value):
                plain = {name: item for name, item in (_attributes(value) or {}).items() if type(item) in SCALARS}
                self._made |= {(id(value), name): item for name, item in plain.items()}
                self._kept.append(value)
            elif _is_mujoco(value, "MjModel"):
                self._remember(array for _, array in _arrays(value))
            elif type(value) is np.ndarray and value.base is None and value.dtype.kind in FIXED_SIZE:
                self._remember([value])

    def _remember(self, arrays: Any) -> None:
        for array in arrays:
            if BIG < array.nbytes <= HUGE:
                self._big[_address(array)] = array, _checksum(array)

    def capture(self) -> bytes:
        """Return everything of the environment that is plain data."""
        written = _Writer(self._made, self._big).write(self._env, "env")
        packed = zlib.compress(json.dumps(written, separators=(",", ":")).encode(), 1)
        if len(packed) > LARGEST:
            raise CannotSave(f"its state has {len(packed) / 2**20:.0f} MiB, more than {LARGEST // 2**20}")
        return packed

    def restore(self, packed: bytes) -> None:
        """Put what another environment of the same make was captured with into this one."""
        _Reader(self._made, self._kept).read(json.loads(zlib.decompress(packed)), self._env, "env")


class _Writer:
    """One walk; what is met again is written as a reference to the first time."""

    def __init__(self, made: Made, big: dict[int, tuple[np.ndarray, int]]):
        self._made, self._big = made, big
        self._seen: dict[int, int] = {}
        self._kept: list[Any] = []  # so that no address is used twice
        self._count = 0

    def write(self, value: Any, where: str) -> Node:
        self._count += 1
        if self._count > MOST:
            raise CannotSave(f"it holds more than {MOST:,} values")
        if type(value) in SCALARS:
            return ["value", value]
        kind = _kind(value)
        if kind is None:
            raise CannotSave(f"{where} is a {type(value).__qualname__}, which is no plain data")
        if kind in ("code", "constant", "shared"):
            return [kind, _name(value) if kind == "code" else "" if kind == "shared" else repr(value)]
        if kind == "foreign":  # such as MuJoCo's numbers, which are written where they belong
            return [kind]
        if id(value) in self._seen:
            return ["again", self._seen[id(value)]]
        self._seen[id(value)] = len(self._seen)
        self._kept.append(value)
        return [kind, *getattr(self, f"_{kind}")(value, where)]

    def _items(self, value: Any, where: str) -> tuple[Any, ...]:
        return ([self.write(item, f"{where}[{i}]") for i, item in enumerate(value)],)

    _list = _tuple = _deque = _set = _frozenset = _items

    def _namedtuple(self, value: Any, where: str) -> tuple[Any, ...]:
        return type(value).__qualname__, *self._items(value, where)

    def _dict(self, value: dict, where: str) -> tuple[Any, ...]:
        keys = [self.write(key, f"a key of {where}") for key in value]
        items = [self.write(item, f"{where}[{key!r}]") for key, item in value.items()]
        return type(value).__name__, keys, items

    def _bytes(self, value: bytes, where: str) -> tuple[Any, ...]:
        return (base64.b64encode(value).decode(),)

    def _complex(self, value: complex, where: str) -> tuple[Any, ...]:
        return value.real, value.imag

    def _number(self, value: np.generic, where: str) -> tuple[Any, ...]:
        return _encode(np.asarray(value))

    def _array(self, value: np.ndarray, where: str) -> tuple[Any, ...]:
        if value.nbytes > HUGE:
            raise CannotSave(f"{where} has {value.nbytes / 2**20:.0f} MiB")
        before = self._big.get(_address(value))
        if before is not None and before[1] == _checksum(value):
            return ("same", before[1])
        return _encode(value)

    def _view(self, value: np.ndarray, where: str) -> tuple[Any, ...]:
        owner = _owner(value)
        node, offset = self.write(owner, f"the owner of {where}"), _address(value) - _address(owner)
        return node, value.dtype.str, list(value.shape), list(value.strides), offset

    def _enum(self, value: enum.Enum, where: str) -> tuple[Any, ...]:
        return (value.name,)

    def _method(self, value: Any, where: str) -> tuple[Any, ...]:
        return self.write(value.__self__, f"the object of {where}"), value.__name__

    def _generator(self, value: np.random.Generator, where: str) -> tuple[Any, ...]:
        seeds: Any = value.bit_generator.seed_seq
        origin = None
        if type(seeds) is np.random.SeedSequence:  # for those that it spawns
            origin = [seeds.entropy, list(seeds.spawn_key), seeds.pool_size, seeds.n_children_spawned]
        return self.write(value.bit_generator.state, where), self.write(origin, where)

    def _legacy(self, value: np.random.RandomState, where: str) -> tuple[Any, ...]:
        return (self.write(value.get_state(legacy=False), where),)

    def _python_random(self, value: random.Random, where: str) -> tuple[Any, ...]:
        return (self.write(value.getstate(), where),)

    def _mjdata(self, value: Any, where: str) -> tuple[Any, ...]:
        """What MuJoCo integrates, and every array that it has computed: some are a substep behind until the next."""
        return value.time, {name: _encode(array) for name, array in _arrays(value)}

    def _mjmodel(self, value: Any, where: str) -> tuple[Any, ...]:
        options = {name: self.write(item, f"{where}.opt.{name}") for name, item in _options(value.opt)}
        return {name: self._array(array, f"{where}.{name}") for name, array in _arrays(value)}, options

    def _object(self, value: Any, where: str) -> tuple[Any, ...]:
        return type(value).__qualname__, {
            name: ["made"] if self._as_made(value, name, item) else self.write(item, f"{where}.{name}")
            for name, item in (_attributes(value) or {}).items()
        }

    _env = _object

    def _as_made(self, owner: Any, name: str, value: Any) -> bool:
        before = self._made.get((id(owner), name), MISSING)
        return type(value) in SCALARS and type(before) is type(value) and repr(before) == repr(value)  # -0.0 is not 0.0


def _kind(value: Any) -> str | None:
    """How a value is written; None for what is no plain data."""
    if type(value) in EXACT:
        return EXACT[type(value)]
    if type(value) is np.ndarray:
        return _kind_of_array(value) if value.dtype.kind in FIXED_SIZE else None
    if isinstance(value, np.random.Generator):
        return "generator" if type(value.bit_generator).__name__ in GENERATORS else None
    tests: list[tuple[bool, str | None]] = [
        (isinstance(value, SHARED), "shared"),
        (isinstance(value, CODE), "code"),
        (isinstance(value, enum.Enum) or _is_mujoco_enum(value), "enum"),
        (isinstance(value, CONSTANTS), "constant"),
        (isinstance(value, types.MethodType), "method"),
        (isinstance(value, np.generic) and value.dtype.kind in FIXED_SIZE, "number"),
        (isinstance(value, tuple) and hasattr(value, "_fields"), "namedtuple"),
        (isinstance(value, np.random.RandomState), "legacy"),
        (_is_mujoco(value, "MjData"), "mjdata"),
        (_is_mujoco(value, "MjModel"), "mjmodel"),
        (_is_plain(value), "env" if isinstance(value, gym.Env) else "object"),
    ]
    return next((kind for holds, kind in tests if holds), None)


def _kind_of_array(value: np.ndarray) -> str | None:
    owner = _owner(value)
    if not (owner.base is None or isinstance(owner.base, bytes | bytearray | memoryview)):
        return "foreign"
    if owner is value:
        return "array"
    return "view" if owner.flags.c_contiguous and owner.dtype.kind in FIXED_SIZE and type(owner) is np.ndarray else None


class _Reader:
    """One walk through the same objects of another environment."""

    def __init__(self, made: Made, kept: list[Any]) -> None:
        self._made, self._kept = made, kept
        self._found: list[Any] = []
        self._taken: set[int] = set()

    def read(self, node: Node, target: Any, where: str) -> Any:
        """Return what belongs where `target` is: a new value, or an environment that was changed in place."""
        kind, *rest = node
        if kind == "value":
            return rest[0]
        if kind in ("code", "constant", "shared", "foreign"):
            return self._unchanged(kind, rest, target, where)
        if kind == "again":
            if self._found[rest[0]] is MISSING:
                raise CannotSave(f"{where} holds itself")
            return self._found[rest[0]]
        place = len(self._found)
        self._found.append(MISSING)

        def keep(value: Any) -> Any:
            """Make a value known before its contents, which may lead back to it, are read."""
            self._found[place] = value
            return value

        found = getattr(self, f"_{kind}")(rest, target, where, keep)
        self._found[place] = found
        return found

    def _unchanged(self, kind: str, rest: Node, target: Any, where: str) -> Any:
        if target is MISSING or _kind(target) != kind or (kind == "code" and _name(target) != rest[0]):
            raise CannotSave(f"{where} was another one")
        if kind == "constant" and repr(target) != rest[0]:
            raise CannotSave(f"{where} was {rest[0]}")
        return target

    def _items(self, nodes: list[Node], target: Any, where: str) -> Iterator[Any]:
        there = list(target) if isinstance(target, list | tuple | collections.deque) else []
        there += [MISSING] * (len(nodes) - len(there))
        return (self.read(node, there[i], f"{where}[{i}]") for i, node in enumerate(nodes))

    def _list(self, rest: Node, target: Any, where: str, keep: Callable) -> list:
        found = keep([])
        found.extend(self._items(rest[0], target, where))
        return found

    def _tuple(self, rest: Node, target: Any, where: str, keep: Callable) -> tuple:
        return tuple(self._items(rest[0], target, where))

    def _namedtuple(self, rest: Node, target: Any, where: str, keep: Callable) -> tuple:
        self._check_type(rest[0], target, where)
        return type(target)(*self._items(rest[1], target, where))

    def _deque(self, rest: Node, target: Any, where: str, keep: Callable) -> collections.deque:
        if not isinstance(target, collections.deque):
            raise CannotSave(f"{where} is there only from some time on")  # and nobody knows its largest size
        found = keep(collections.deque(maxlen=target.maxlen))
        found.extend(self._items(rest[0], target, where))
        return found

    def _set(self, rest: Node, target: Any, where: str, keep: Callable) -> set:
        return set(self._items(rest[0], (), where))

    def _frozenset(self, rest: Node, target: Any, where: str, keep: Callable) -> frozenset:
        return frozenset(self._items(rest[0], (), where))

    def _dict(self, rest: Node, target: Any, where: str, keep: Callable) -> dict:
        name, key_nodes, nodes = rest
        if name == "defaultdict":
            self._check_type(name, target, where)
        makers: dict[str, Callable[[], dict]] = {
            "dict": dict,
            "OrderedDict": collections.OrderedDict,
            "Counter": collections.Counter,
            "defaultdict": lambda: collections.defaultdict(target.default_factory),
        }
        found, there = keep(makers[name]()), target if isinstance(target, dict) else {}
        keys = [self.read(node, MISSING, f"a key of {where}") for node in key_nodes]
        for key, node in zip(keys, nodes, strict=True):
            found[key] = self.read(node, there.get(key, MISSING), f"{where}[{key!r}]")
        return found

    def _bytes(self, rest: Node, target: Any, where: str, keep: Callable) -> bytes:
        return base64.b64decode(rest[0])

    def _complex(self, rest: Node, target: Any, where: str, keep: Callable) -> complex:
        return complex(*rest)

    def _number(self, rest: Node, target: Any, where: str, keep: Callable) -> Any:
        return _decode(*rest)[()]

    def _array(self, rest: Node, target: Any, where: str, keep: Callable) -> np.ndarray:
        if rest[0] != "same":
            return _decode(*rest)
        if not isinstance(target, np.ndarray) or _checksum(target) != rest[1]:
            raise CannotSave(f"{where} has changed here and had not where it was saved")
        return target

    def _view(self, rest: Node, target: Any, where: str, keep: Callable) -> np.ndarray:
        node, dtype, shape, strides, offset = rest
        there = _owner(target) if isinstance(target, np.ndarray) else MISSING
        owner = self.read(node, there, f"the owner of {where}")
        return np.ndarray(tuple(shape), dtype, owner, offset, tuple(strides))

    def _enum(self, rest: Node, target: Any, where: str, keep: Callable) -> Any:
        if target is MISSING or _kind(target) != "enum":
            raise CannotSave(f"{where} was one of an enumeration")
        return getattr(type(target), rest[0])

    def _method(self, rest: Node, target: Any, where: str, keep: Callable) -> Any:
        if not isinstance(target, types.MethodType):
            raise CannotSave(f"{where} was a method")
        return getattr(self.read(rest[0], target.__self__, f"the object of {where}"), rest[1])

    def _generator(self, rest: Node, target: Any, where: str, keep: Callable) -> np.random.Generator:
        state, origin = (self.read(node, MISSING, where) for node in rest)
        if state["bit_generator"] not in GENERATORS:
            raise CannotSave(f"{where} is no generator of NumPy's")
        seeds = None
        if origin is not None:
            entropy, key, size, spawned = origin
            seeds = np.random.SeedSequence(entropy, spawn_key=key, pool_size=size, n_children_spawned=spawned)
        bits = getattr(np.random, state["bit_generator"])(seeds)
        bits.state = state
        return np.random.Generator(bits)

    def _legacy(self, rest: Node, target: Any, where: str, keep: Callable) -> np.random.RandomState:
        found = np.random.RandomState()
        found.set_state(self.read(rest[0], MISSING, where))
        return found

    def _python_random(self, rest: Node, target: Any, where: str, keep: Callable) -> random.Random:
        found = random.Random()
        found.setstate(self.read(rest[0], MISSING, where))
        return found

    def _mjdata(self, rest: Node, target: Any, where: str, keep: Callable) -> Any:
        self._take(keep(target), "mjdata", where)
        target.time = rest[0]
        for name, array in _arrays(target):
            if name in rest[1] and list(array.shape) == rest[1][name][1]:
                array[...] = _decode(*rest[1][name])
            elif name in ("qpos", "qvel", "act", "ctrl"):
                raise CannotSave(f"{where}.{name} has another size")
        return target

    def _mjmodel(self, rest: Node, target: Any, where: str, keep: Callable) -> Any:
        self._take(keep(target), "mjmodel", where)
        for name, array in _arrays(target):
            saved = self._array(rest[0][name], array, f"{where}.{name}", keep)
            if saved is not array:
                array[...] = saved
        for name, value in _options(target.opt):
            setattr(target.opt, name, self.read(rest[1][name], value, f"{where}.opt.{name}"))
        return keep(target)

    def _env(self, rest: Node, target: Any, where: str, keep: Callable) -> Any:
        self._take(keep(target), "env", where)
        self._check_type(rest[0], target, where)
        return self._fill(rest[1], target, target, where)

    def _object(self, rest: Node, target: Any, where: str, keep: Callable) -> Any:
        """A copy, since an object that is no environment may be shared with others, even by the whole process."""
        self._check_type(rest[0], target, where)
        copied = object.__new__(type(target))
        vars(copied).update(vars(target))
        self._kept.append(copied)  # which takes the place of the other, also when this environment is captured
        made = {n: self._made[id(target), n] for n in vars(copied) if (id(target), n) in self._made}
        self._made |= {(id(copied), name): value for name, value in made.items()}
        return self._fill(rest[1], target, keep(copied), where)

    def _fill(self, nodes: dict[str, Node], old: Any, new: Any, where: str) -> Any:
        there = dict(vars(old))
        vars(new).clear()
        for name, node in nodes.items():
            if node[0] == "made":
                vars(new)[name] = self._made[id(old), name]
            else:
                vars(new)[name] = self.read(node, there.get(name, MISSING), f"{where}.{name}")
        return new

    def _check_type(self, name: str, target: Any, where: str) -> None:
        if type(target).__qualname__ != name:
            now = "not there" if target is MISSING else f"a {type(target).__qualname__}"
            raise CannotSave(f"{where} is {now} and was a {name}")

    def _take(self, target: Any, kind: str, where: str) -> None:
        """Refuse to write two different things into one place."""
        if target is MISSING or _kind(target) != kind or id(target) in self._taken:
            raise CannotSave(f"{where} stands for something else here")
        self._taken.add(id(target))


def _encode(value: np.ndarray) -> tuple[str, list[int], str]:
    return value.dtype.str, list(value.shape), base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()


def _decode(dtype: str, shape: list[int], data: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(data), dtype).reshape(shape).copy()


def _owner(array: np.ndarray) -> np.ndarray:
    """The array whose numbers these are."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def _checksum(array: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def _name(value: Any) -> str:
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', getattr(value, '__name__', ''))}"


def _arrays(owner: Any) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays of MuJoCo's data or model that can be written and have the same size in every environment."""
    for name in dir(type(owner)):
        if name.startswith(("_", "contact", "efc_", "iefc_", "island_", "dof_island", "tree_island")):
            continue  # contacts and constraints are found anew in every step
        array = getattr(owner, name, None)
        if isinstance(array, np.ndarray) and array.dtype.kind in FIXED_SIZE and array.flags.writeable and array.size:
            yield name, array


def _options(options: Any) -> Iterator[tuple[str, Any]]:
    """The numbers among a model's options, such as its gravity and its time step."""
    for name in dir(type(options)):
        value = None if name.startswith("_") else getattr(options, name)
        if isinstance(value, np.ndarray):
            yield name, np.array(value)
        elif type(value) in (int, float):
            yield name, value


def _is_mujoco(value: Any, kind: str) -> bool:
    mujoco = sys.modules.get("mujoco")
    return mujoco is not None and isinstance(value, getattr(mujoco, kind))


def _is_mujoco_enum(value: Any) -> bool:
    return type(value).__module__.startswith("mujoco") and type(value).__name__.startswith("mjt")


def _attributes(value: Any) -> dict[str, Any] | None:
    """An object's own attributes, whatever it does when it is asked for one."""
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return found if isinstance(found, dict) else None


def _is_plain(value: Any) -> bool:
    """Whether an object is its attributes and nothing else."""
    kind = type(value)
    package = kind.__module__.partition(".")[0]
    ours = package not in FOREIGN and (package == "__main__" or package not in sys.stdlib_module_names)
    if not ours or _attributes(value) is None or issubclass(kind, (enum.Enum, *SHARED)):
        return False
    in_python = all(part is object or part.__flags__ & WRITTEN_IN_PYTHON for part in kind.__mro__)
    return in_python and not any(vars(part).get("__slots__") for part in kind.__mro__)


def _reach(value: Any) -> Iterator[Any]:
    """Everything that a walk meets, once; what is too much is found out when it is to be written."""
    seen, ahead = {id(value)}, [value]
    while ahead and len(seen) < MOST:
        now = ahead.pop()
        yield now
        inside: Any = ()
        if type(now) in DICTIONARIES:
            inside = now.values()
        elif type(now) in (list, tuple, collections.deque):
            inside = now
        elif _is_plain(now):
            inside = (_attributes(now) or {}).values()
        for item in inside:
            if id(item) not in seen and type(item) not in SCALARS:
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
