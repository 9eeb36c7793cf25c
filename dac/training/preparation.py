"""What a run needs before its first step: its dataset, a place for its replay buffer, the loop that fits its task."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from dac.config import RunConfig
from dac.core.schedule import Schedule
from dac.core.types import EnvSpec
from dac.training.device import DeviceLoop
from dac.training.devices import choose_devices, count_devices
from dac.training.host import HostLoop
from dac.training.loop import AbstractLoop
from dac.training.memory import Place, describe_replay, place_replay

if TYPE_CHECKING:
    from dac.training.offline import OfflineData


def read_dataset(config: RunConfig) -> tuple[RunConfig, OfflineData | None]:
    """The dataset that the run learns from beside what it sees, or None, and the run with the dataset's checksum."""
    if config.training.init_replay == "none":
        return config, None
    from dac.training.offline import load_offline  # Gymnasium comes with it, for which the others need not wait

    task = config.find_task()
    offline = load_offline(config.training.init_replay, task.spec(), task.bounds())
    return config.with_dataset(offline.name), offline


def place_of(
    config: RunConfig,
    spec: EnvSpec | None = None,
    offline: OfflineData | None = None,
    schedule: Schedule | None = None,
) -> Place:
    """Where the replay buffer of this run goes, a dataset with it; refuses, with the figures, one that fits nowhere."""
    task, schedule = config.find_task(), schedule or config.schedule()
    # a rollout is small and read as a whole: what learns on-policy has it on the device
    on_host = task.host is not None and not schedule.rollout
    wanted = "auto" if schedule.rollout else config.training.replay
    members = len(config.members())
    devices = count_devices(choose_devices(config.training.devices, members)[0])
    return place_replay(
        wanted, members, schedule, spec or task.spec(), on_host=on_host, offline=offline, devices=devices
    )


def make_loop(config: RunConfig, offline: OfflineData | None = None) -> tuple[AbstractLoop, str]:
    """The loop that fits the task, and a line on the memory that its replay buffer needs."""
    task, members, schedule = config.find_task(), config.members(), config.schedule()
    algorithm, on_nan = config.make_algorithm(), config.training.on_nan
    assert (offline is None) == (schedule.offline_share == 0), "a run with init_replay needs `read_dataset`"
    dataset = None if offline is None else offline.rows
    mesh, _ = choose_devices(config.training.devices, len(members))
    if task.device is not None:
        env = task.device()
        place = place_of(config, env.spec, offline)
        memory = describe_replay(place, len(members), schedule, env.spec)
        return DeviceLoop(algorithm, env, members, schedule, on_nan=on_nan, dataset=dataset, mesh=mesh), memory
    make_envs = functools.partial(task.make_envs, workers=config.training.workers)
    envs = make_envs(len(members) * schedule.envs)
    try:
        place = place_of(config, envs.spec, offline)
        memory = describe_replay(place, len(members), schedule, envs.spec)
        loop = HostLoop(
            algorithm,
            make_envs,
            members,
            schedule,
            envs=envs,
            dataset=dataset,
            host_replay=place == "host",
            on_nan=on_nan,
            eval_limit=config.training.eval_limit,
            mesh=mesh,
        )
    except BaseException:
        envs.close()
        raise
    return loop, memory
