"""Machines of a Ray cluster, all on this one. A process of its own starts them, because Ray does not survive forks."""

import multiprocessing
import os
import signal
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

MEMORY = 80 << 20  # bytes of the object store of each machine


class Machines:
    """A Ray cluster, to which machines with one CPU may be added. They are known by the pid of their first process."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs,))
        self.process.start()
        theirs.close()
        self.address: str = self.pipe.recv()
        self.pids: list[int] = []

    def add(self) -> int:
        """Starts a machine, and returns it once Ray has noticed it."""
        self.pipe.send(None)
        self.pids.append(self.pipe.recv())
        return self.pids[-1]

    def remove(self, machine: int) -> None:
        """Kills all processes of a machine at once."""
        self.pids.remove(machine)
        for pid in (machine, *children(machine)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.pipe.send(machine)

    def actors(self) -> list[int]:
        """Returns the processes of all actors that run shards."""
        return [pid for machine in self.pids for pid in children(machine) if title(pid).startswith("ray::Server")]

    def close(self) -> None:
        """Ends all machines."""
        self.pipe.close()
        self.process.join()


def serve(pipe: Connection) -> None:
    """Starts and removes machines until the pipe is closed."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": MEMORY})
    nodes = {}
    try:
        pipe.send(cluster.address)
        while True:
            machine = pipe.recv()
            if machine is None:
                node = cluster.add_node(num_cpus=1, object_store_memory=MEMORY)
                pid = node.all_processes["raylet"][0].process.pid
                nodes[pid] = node
                pipe.send(pid)
            else:
                cluster.remove_node(nodes.pop(machine), allow_graceful=False)
    except EOFError:
        pass
    finally:
        cluster.shutdown()


def children(pid: int) -> list[int]:
    """Returns the processes that a process has started."""
    with suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def title(pid: int) -> str:
    """Returns the command line of a process, or "" if it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return ""
