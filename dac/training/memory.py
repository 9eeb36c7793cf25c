"""Memory: how much the replay buffer needs and where it fits, and freed memory that is kept for the next update."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Literal

import jax

from dac.core.schedule import Schedule
from dac.core.types import EnvSpec, UsageError, float_dtype, row_size

if TYPE_CHECKING:
    from dac.training.offline import OfflineData  # without Gymnasium, for which a help text need not wait

Place = Literal["auto", "device", "host"]
PROCESSES = "DAC_PROCESSES"
"""Names the environment variable that says how many processes share the machine's memory."""
SHARE = 0.8  # of the free memory; networks, batches and programs need the rest


def replay_bytes(members: int, schedule: Schedule, spec: EnvSpec) -> int:
    return members * schedule.capacity * row_size(spec) * float_dtype().itemsize


def place_replay(
    wanted: Place,
    members: int,
    schedule: Schedule,
    spec: EnvSpec,
    *,
    on_host: bool,
    offline: OfflineData | None = None,
    devices: int = 1,
) -> Place:
    """`device` or `host`, or an error with the figures if it fits in neither; an offline dataset goes to the same.

    Of several devices each has the replay buffers of its own members, and the whole dataset.
    """
    dataset = 0 if offline is None else offline.rows.nbytes
    need = replay_bytes(members, schedule, spec) + dataset
    device, host = device_bytes(devices), host_bytes()
    if wanted != "host" and (device is None or need + (devices - 1) * dataset <= SHARE * device):
        return "device"
    if wanted != "device" and on_host and (host is None or need <= SHARE * host):
        return "host"
    figures = f"device {_gib(device)} free" + (f", host {_gib(host)} free" if on_host else "")
    raise UsageError(
        f"the replay of {members} members x {schedule.capacity} transitions "
        f"{'' if offline is None else f'with a dataset of {len(offline.rows)} '}needs {_gib(need)} ({figures}); "
        "lower `capacity=`, `steps=` or the number of members"
    )


def device_bytes(count: int = 1) -> int | None:
    """Free memory of the devices that compute, as if each had as much as the fullest; on a CPU that is the host's."""
    devices = jax.local_devices()[:count]
    if devices[0].platform == "cpu":  # also where XLA divides it into several
        return host_bytes()
    found = [device.memory_stats() for device in devices]
    if not all(stats and "bytes_limit" in stats for stats in found):
        return None
    return count * min(stats["bytes_limit"] - stats.get("bytes_in_use", 0) for stats in found)


def host_bytes() -> int | None:
    """This process's share of the memory that is free."""
    free = _available_bytes()
    return None if free is None else free // int(os.environ.get(PROCESSES, "1"))


def _available_bytes() -> int | None:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def _gib(size: int | None) -> str:
    return "unknown" if size is None else f"{size / 2**30:.2f} GiB"


def keep_freed_memory() -> bool:
    """Have the C library keep freed memory for the next update; return whether it will.

    XLA allocates the intermediate results of an update anew each time, in a thread of its own. glibc gives such blocks
    back to the system, which hands out empty pages one by one when they are touched again: 38,000 in every step of 10
    members, two fifths of the time. So large blocks come from the heap, the heap does not shrink below 2 GiB, and there
    is one for all threads, since only the first has no bound. Whoever sets malloc's own variables knows better.
    """
    if any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):  # another C library
        return False
    arena_max, trim_threshold, mmap_threshold = -8, -1, -3  # malloc.h
    return bool(mallopt(arena_max, 1) and mallopt(trim_threshold, 2**31 - 1) and mallopt(mmap_threshold, 2**30))


def describe_replay(place: Place, members: int, schedule: Schedule, spec: EnvSpec) -> str:
    return f"replay: {_gib(replay_bytes(members, schedule, spec))} on the {place}"
