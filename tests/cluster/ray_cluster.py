"""A Ray cluster of several nodes on this machine, on loopback addresses alone, of which nothing is left."""

import contextlib
import os
import shutil
import signal
import tempfile
from pathlib import Path

QUIET = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}


def descendants(pid):
    """The processes below one, the nearest first."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for process in found:
        found += [child for child, parent in parents.items() if parent == process]
    return found[1:]


class Nodes:
    """The nodes: `lose` takes one away with everything on it, as a power failure does."""

    def __init__(self):
        from ray.cluster_utils import Cluster

        self._hosts = iter(range(2, 250))
        self._cluster = Cluster(initialize_head=True, head_node_args={"include_dashboard": False} | self._node(0))
        self.address = self._cluster.address

    def add(self, cpus=1):
        return self._cluster.add_node(**self._node(cpus))

    def lose(self, node):
        raylet = node.all_processes["raylet"][0].process
        below = descendants(raylet.pid)
        for pid in [raylet.pid, *below]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._cluster.remove_node(node, allow_graceful=False)

    def close(self):
        import ray

        ray.shutdown()
        self._cluster.shutdown()

    def _node(self, cpus):
        # not 127.0.0.1, which Ray replaces by an address that others can reach
        return {"num_cpus": cpus, "node_ip_address": f"127.0.0.{next(self._hosts)}"}


@contextlib.contextmanager
def ray_nodes(*cpus):
    """A head without room, and so many nodes with their CPUs."""
    folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # names of sockets must be short
    before = {name: os.environ.get(name) for name in (*QUIET, "RAY_TMPDIR")}
    os.environ.update(QUIET | {"RAY_TMPDIR": folder})
    started = set(descendants(os.getpid()))
    nodes = None
    try:
        nodes = Nodes()
        yield nodes, [nodes.add(count) for count in cpus]
    finally:
        if nodes is not None:
            nodes.close()
        for pid in set(descendants(os.getpid())) - started:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        shutil.rmtree(folder)
    assert set(descendants(os.getpid())) <= started  # nothing of the cluster is left
