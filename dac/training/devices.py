"""Several devices for one population: every device has some of the members, and runs the program of one device.

Members need nothing of each other, so nothing travels between devices. Each device gets the very program that it would
run if its members were the whole population, one call after the other, none waited for. So the results are, to the bit,
those of populations with as many members as a device has. One program for all devices (`jax.shard_map`) would not even
give that: XLA optimises a program for several devices in another order. How far a population of other members is the
same is XLA's affair, which may compile a program for another number of members in another way.

Between calls a tree is one of two things: `Parts`, what each device has of it, or arrays that are spread over the
devices by their leading axis (`jax.sharding`), which the rest of the package can read like any others.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from dac.core.types import UsageError
from dac.envs.host import usable_cores

Tree = TypeVar("Tree", bound=PyTree)
AXIS = "member"
DIVIDE = "xla_force_host_platform_device_count"
"""XLA's own flag for a CPU of several devices."""


class Parts(list):
    """What each device has of a tree, in the order of the members."""


jax.tree_util.register_pytree_node(Parts, lambda parts: (list(parts), None), lambda _, parts: Parts(parts))


def divide_cpu(wanted: int) -> None:
    """Have XLA make so many devices of a CPU, at most one per core: each trains members of its own, all at once.

    That can only be done before JAX has begun to compute. Where it has, or where XLA_FLAGS say how many devices there
    are, they stay as they are, and `choose_devices` refuses more.
    """
    if wanted > 1 and DIVIDE not in os.environ.get("XLA_FLAGS", ""):
        with contextlib.suppress(RuntimeError):
            jax.config.update("jax_num_cpu_devices", min(wanted, usable_cores()))


def choose_devices(wanted: int, members: int) -> tuple[Mesh | None, str | None]:
    """Choose the devices of a run and say which they are, where there is a choice; None stands for one device.

    Every device has as many members as the others, so it is the largest number of devices that divides them. And each
    has at least two, since the program of a single member is the one that differs most from those of many. 0 asks for
    every accelerator; a CPU is one device unless more are asked for (`divide_cpu`).
    """
    found = jax.local_devices()
    kind = found[0].platform
    if wanted > len(found):
        late = kind == "cpu" and wanted <= usable_cores()
        way = f"; a CPU is divided before JAX has begun to compute, or by XLA_FLAGS=--{DIVIDE}={wanted}" if late else ""
        raise UsageError(
            f"devices must be from 0 to {len(found)}, as many {kind} devices as there are, not {wanted}{way}"
        )
    most = wanted or (1 if kind == "cpu" else len(found))
    if most == 1:
        return None, None
    count = max(number for number in range(1, most + 1) if number == 1 or (members % number == 0 and members > number))
    line = f"devices: {members} members on {count} of {len(found)} {kind} devices, {members // count} on each"
    if count < most:
        line += f" ({most} devices need {2 * most}, {3 * most}, ... members)"
    return (Mesh(np.array(found[:count]), (AXIS,)) if count > 1 else None), line


def count_devices(mesh: Mesh | None) -> int:
    """How many devices there are."""
    return 1 if mesh is None else mesh.size


def spread(tree: Tree, mesh: Mesh | None) -> Tree:
    """Put arrays with a leading member axis onto the devices of their members."""
    return tree if mesh is None else jax.device_put(tree, NamedSharding(mesh, PartitionSpec(AXIS)))


def mesh_of(tree: PyTree) -> Mesh | None:
    """The devices over which a tree is spread by members, or None where each of its devices has all of it."""
    sharding = getattr(jax.tree.leaves(tree)[0], "sharding", None)
    if not isinstance(sharding, NamedSharding) or sharding.spec[:1] != (AXIS,):  # such as one member taken out
        return None
    return sharding.mesh if isinstance(sharding.mesh, Mesh) and sharding.mesh.size > 1 else None


def split(tree: PyTree, mesh: Mesh | None) -> Any:
    """What each device has of a tree with a leading member axis; the tree itself where there is one device."""
    if mesh is None or isinstance(tree, Parts):
        return tree
    leaves, structure = jax.tree.flatten(tree)
    parts = [_pieces(leaf, mesh) for leaf in leaves]
    return Parts(jax.tree.unflatten(structure, [piece[i] for piece in parts]) for i in range(mesh.size))


def _pieces(array: Any, mesh: Mesh) -> list[Any]:
    """The array's part on each device, without a copy where it is there already; of NumPy's arrays a view."""
    if isinstance(array, np.ndarray):
        return np.split(array, mesh.size)
    shards = {shard.device: shard.data for shard in spread(array, mesh).addressable_shards}
    return [shards[device] for device in mesh.devices.flat]


def empty(shape: tuple[int, ...], dtype: Any, mesh: Mesh | None) -> Any:
    """Zeros with a leading member axis, made where they are to be."""
    if mesh is None:
        return jnp.zeros(shape, dtype)
    part = (shape[0] // mesh.size, *shape[1:])
    return Parts(jnp.zeros(part, dtype, device=device) for device in mesh.devices.flat)


def everywhere(tree: PyTree, mesh: Mesh | None) -> Any:
    """A copy of the tree on each device; the tree itself where there is one."""
    return tree if mesh is None else Parts(jax.device_put(tree, device) for device in mesh.devices.flat)


def join(parts: Any, mesh: Mesh | None) -> Any:
    """The parts of the devices as arrays that are spread over them, without a copy."""
    if mesh is None:
        return parts
    sharding = NamedSharding(mesh, PartitionSpec(AXIS))

    def one(*pieces: jax.Array) -> jax.Array:
        shape = (sum(piece.shape[0] for piece in pieces), *pieces[0].shape[1:])
        return jax.make_array_from_single_device_arrays(shape, sharding, list(pieces))

    return jax.tree.map(one, *parts)


def download(parts: Any) -> np.ndarray:
    """An array, or the parts of one, in host memory."""
    return np.concatenate([np.asarray(part) for part in parts]) if isinstance(parts, Parts) else np.asarray(parts)


def on_each(mesh: Mesh | None, program: Callable, *arguments: Any) -> Any:
    """Call a program on every device with its parts of the arguments; what is not in parts is the same for all."""
    if mesh is None:
        return program(*arguments)
    return Parts(
        program(*(argument[i] if isinstance(argument, Parts) else argument for argument in arguments))
        for i in range(mesh.size)
    )


def results(mesh: Mesh | None, returned: Any) -> Any:
    """The results of a program that returns several, each in parts."""
    return returned if mesh is None else tuple(map(Parts, zip(*returned, strict=True)))
