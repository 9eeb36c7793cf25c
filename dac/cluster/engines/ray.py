"""The engine of a Ray cluster: a task for each population, which trains it in a process of its own on some node.

Ray finds a node with room and tells of one that is lost; it repeats nothing itself, because what is tried again is the
driver's business, and from the last checkpoint. Results are in a directory that all nodes share, or in a `storage`: any
URL that fsspec knows, to which a node copies a run at its checkpoints and from which another one goes on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pickle
import platform
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dac._version import __version__
from dac.cluster.engines.base import AbstractEngine, Ended, Event, Failed, Lost
from dac.cluster.storage import OWNER, Place, copy_run
from dac.cluster.worker import Worker, shares
from dac.core.errors import UsageError, needs_extra
from dac.experiments.plan import Job

LOOK = 0.5
"""Seconds between two looks at a worker and at its checkpoints."""
HOME = 10.0
"""Seconds between two looks of the driver at what the storage says of runs that go on."""
PATIENCE = 10.0
"""Seconds that a cluster has to answer."""


@dataclasses.dataclass(frozen=True)
class Order:
    """What a node has to know to train one population."""

    number: int
    job: Job
    cpus: float
    gpus: float
    marker: str
    """A file that a node sees which shares the directory."""
    storage: str | None
    owner: str


class RayEngine(AbstractEngine):
    """Populations on the nodes of a cluster that runs already; each takes `cpus` and `gpus`, which may be fractions."""

    name = "ray"

    def __init__(
        self,
        address: str = "auto",
        *,
        cpus: float = 1.0,
        gpus: float = 0.0,
        jobs: int | None = None,
        storage: str | None = None,
    ):
        with needs_extra("ray", "the engine ray"):
            import ray
        if cpus < 0 or gpus < 0 or cpus + gpus == 0:
            raise UsageError(f"a population needs a part of a CPU or a GPU, not cpus={cpus:g} and gpus={gpus:g}")
        if gpus > 1 and gpus != int(gpus):
            raise UsageError(f"gpus must be a part of one GPU or a whole number, not {gpus:g}")
        if storage is not None:
            Place(storage)  # refuses what is unknown before anything begins
        self._ray, self._jobs, self._cpus, self._gpus, self._storage = ray, jobs, cpus, gpus, storage
        self._running: dict[Any, tuple[Order, Path]] = {}
        self._marker = f".study-{secrets.token_hex(4)}"
        self._markers: set[Path] = set()
        self._asked, self._looked = False, 0.0
        _connect(ray, address)
        try:
            self._check_fit()
        except BaseException:
            ray.shutdown()
            raise
        self._task = ray.remote(_portable()).options(num_cpus=cpus, num_gpus=gpus, max_retries=0, name="dac population")

    def room(self) -> int:
        most = sum(self._fits(node["Resources"]) for node in self._nodes())
        return max(0, (most if self._jobs is None else min(most, self._jobs)) - len(self._running))

    def begin(self, number: int, job: Job) -> None:
        home, owner = job.directory.absolute(), secrets.token_hex(8)
        self._put_marker(home.parent)
        if self._storage is not None:
            there = Place(self._storage) / home.name
            if Place(home).last_checkpoint() > there.last_checkpoint():  # trained on somewhere else in between
                copy_run(Place(home), there)
            there.write(OWNER, owner.encode())
        order = Order(
            number,
            dataclasses.replace(job, directory=home),
            self._cpus,
            self._gpus,
            str(home.parent / self._marker),
            self._storage,
            owner,
        )
        reference = self._task.remote(pickle.dumps(order), _versions())
        self._running[reference] = order, home

    def wait(self, seconds: float) -> Sequence[Event]:
        if not self._running:  # all nodes are away: others may join
            time.sleep(min(seconds, 1.0))
            return []
        self._bring_home()
        ready, _ = self._ray.wait(list(self._running), num_returns=1, timeout=min(seconds, 3600.0))
        return [self._end(reference) for reference in ready]

    def stop(self) -> None:
        self._asked = True
        for reference in self._running:  # a running one is interrupted and saves, one that waits for a node is dropped
            self._ray.cancel(reference, force=False)

    def close(self) -> None:
        if self._running and not self._asked:
            self.stop()
        end = time.monotonic() + 120
        while self._running and time.monotonic() < end:
            self.wait(1.0)
        for marker in self._markers:
            marker.unlink(missing_ok=True)
        self._ray.shutdown()

    def _end(self, reference: Any) -> Event:
        """What became of a task; what it saved is at home before anybody is told."""
        order, home = self._running.pop(reference)
        errors = self._ray.exceptions
        event: Event
        try:
            found = self._ray.get(reference)
            event = Failed(order.number, found) if isinstance(found, str) else found
        except errors.TaskCancelledError:
            event = Ended(order.number)
        except errors.RayError as error:
            event = Lost(order.number, _first_line(error))
        if self._storage is not None and not isinstance(event, Failed):
            copy_run(Place(self._storage) / home.name, Place(home))
        return event

    def _bring_home(self) -> None:
        """Fetch what tells how far runs are, now and then."""
        if self._storage is None or time.monotonic() < self._looked + HOME:
            return
        for _, home in self._running.values():
            with contextlib.suppress(OSError):  # the next look may see more
                copy_run(Place(self._storage) / home.name, Place(home), light=True)
        self._looked = time.monotonic()

    def _put_marker(self, folder: Path) -> None:
        if self._storage is None and folder / self._marker not in self._markers:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                (folder / self._marker).touch()
            except OSError as error:
                raise UsageError(f"cannot write {folder}: {error.strerror}") from None
            self._markers.add(folder / self._marker)

    def _nodes(self) -> list[dict[str, Any]]:
        return [node for node in self._ray.nodes() if node["Alive"]]

    def _fits(self, resources: Mapping[str, float]) -> int:
        """How many populations a node with these resources holds."""
        wanted = {"CPU": self._cpus, "GPU": self._gpus}
        return int(min((resources.get(name, 0) + 1e-6) // amount for name, amount in wanted.items() if amount))

    def _check_fit(self) -> None:
        """Refuse a request that no node could ever hold, for which Ray would wait for ever."""
        nodes = self._nodes()
        if any(self._fits(node["Resources"]) for node in nodes):
            return
        largest = {n: max((node["Resources"].get(n, 0) for node in nodes), default=0) for n in ("CPU", "GPU")}
        raise UsageError(
            f"no node of the Ray cluster can hold a population with cpus={self._cpus:g} and gpus={self._gpus:g}: "
            f"the largest of {len(nodes)} has {largest['CPU']:g} CPUs, and {largest['GPU']:g} GPUs are the most"
        )


def make(jobs: int | None = None, address: str | None = None, options: Mapping[str, str] | None = None) -> RayEngine:
    """The engine for a cluster at an address; options are `cpus`, `gpus` and `storage`."""
    given = dict(options or {})
    storage = given.pop("storage", None)
    amounts = {}
    for name in ("cpus", "gpus"):
        if name in given:
            try:
                amounts[name] = float(given.pop(name))
            except ValueError:
                raise UsageError(f"{name} of the engine ray must be a number, not {(options or {})[name]!r}") from None
    if given:
        raise UsageError(f"the engine ray has no option {next(iter(given))!r} (accepted: cpus, gpus, storage)")
    return RayEngine("auto" if address is None else address, jobs=jobs, storage=storage, **amounts)


def _connect(ray: Any, address: str) -> None:
    """Connect to a cluster that runs; Ray itself would try for minutes where nobody answers."""
    text = address.removeprefix("ray://")
    if text != "auto":
        host, _, port = text.rpartition(":")
        try:
            socket.create_connection((host, int(port)), PATIENCE).close()
        except ValueError:
            raise UsageError(f"bad address {address!r} (accepted: auto, HOST:PORT, ray://HOST:PORT)") from None
        except OSError as error:
            why = error.strerror or str(error)
            raise UsageError(f"no Ray cluster answers at {address}: {why}; start one: ray start --head") from None
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray.init(address=address, log_to_driver=False, configure_logging=False)
    except ImportError as error:  # ray:// is Ray's client, an extra of its own
        raise UsageError(f"{address} needs the extra client of Ray: pip install 'ray[client]' ({error})") from None
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:  # the last: no token
        raise UsageError(f"cannot use the Ray cluster at {address}: {_first_line(error)}") from None


def _first_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


def _versions() -> dict[str, str]:
    """What has to be the same on all nodes."""
    return {"dac": __version__, "Python": ".".join(platform.python_version_tuple()[:2])}


def _portable() -> Callable[..., Any]:
    """The task, as a function that travels by value: a node without this package can still say what it lacks."""

    def population(order: bytes, wanted: dict[str, str]) -> Any:
        import platform
        import socket

        found = {"Python": ".".join(platform.python_version_tuple()[:2])}
        try:
            from dac._version import __version__ as version
        except ImportError:
            raise RuntimeError(
                f"the node {socket.gethostname()} has no dac {wanted['dac']}: install it there"
            ) from None
        found["dac"] = version
        for name, value in wanted.items():
            if found[name] != value:
                where = f"the node {socket.gethostname()} has {name} {found[name]}, this machine {value}"
                return f"{where}: install the same on all nodes"
        from dac.cluster.engines.ray import train_here

        return train_here(order)

    return population


def train_here(pickled: bytes) -> Event:
    """Train one population on this node, in a process of its own; this is inside the task."""
    order: Order = pickle.loads(pickled)
    environment = shares(_neighbours(order), order.gpus or 1.0)
    if order.storage is None:
        if not os.path.exists(order.marker):
            folder = os.path.dirname(order.marker)
            why = f"the node {socket.gethostname()} does not see {folder}: it needs a directory that all nodes share"
            return Failed(order.number, f"{why}, or a storage")
        return _watch(Worker(order.number, order.job, environment=environment), lambda ended: None)
    scratch = Path(tempfile.mkdtemp(prefix="dac-"))
    try:
        home = scratch / order.job.directory.name
        there = Place(order.storage) / home.name
        copy_run(there, Place(home))
        job = dataclasses.replace(order.job, directory=home)
        return _watch(Worker(order.number, job, environment=environment), _Copier(order, home, there))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _watch(worker: Worker, look: Callable[[bool], None]) -> Event:
    """Wait for a worker, and have it save and end if the task is cancelled."""
    try:
        while True:
            try:
                event = worker.event(LOOK)
                look(event is not None)
                if event is not None:
                    return event
            except KeyboardInterrupt:
                worker.stop()
            except _Superseded:
                worker.kill()
                return Lost(worker.number, "another node has taken it over")
            except OSError as error:
                if worker.event(0) is not None:  # the last copy is the one that counts
                    return Lost(worker.number, f"its results cannot be copied to the storage: {_first_line(error)}")
    finally:
        worker.close()


class _Superseded(Exception):
    """Another node trains this population by now."""


class _Copier:
    """Copies a run to the storage when it has a new checkpoint or its progress is some seconds old, and at its end."""

    def __init__(self, order: Order, home: Path, there: Place):
        self._order, self._home, self._there = order, home, there
        self._copied, self._time = "", time.monotonic()

    def __call__(self, ended: bool) -> None:
        here = Place(self._home)
        latest = here.last_checkpoint()
        aged = time.monotonic() > self._time + HOME
        if latest == self._copied and not aged and not ended:
            return
        if self._there.read(OWNER).decode() != self._order.owner:
            raise _Superseded
        copy_run(here, self._there, light=latest == self._copied and not ended)
        self._copied, self._time = latest, time.monotonic()


def _neighbours(order: Order) -> int:
    """How many populations such as this one share the node."""
    import ray

    mine = ray.get_runtime_context().get_node_id()
    resources: Mapping[str, float] = next((node["Resources"] for node in ray.nodes() if node["NodeID"] == mine), {})
    wanted = {"CPU": order.cpus, "GPU": order.gpus}
    return max(1, int(min(resources.get(name, amount) // amount for name, amount in wanted.items() if amount)))
