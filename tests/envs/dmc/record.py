"""Write `recorded.npz`: states of every task, and what dm_control itself observes and pays in them.

The tests run under a MuJoCo that dm_control does not know, so they compare with these numbers. Of 20 episodes of 40
random steps (2 of the slowest robots') the first step, the best paid one and the last one are kept; robots with few
joints are thrown into 300 random positions besides, because random actions hardly ever reach the goal of a sparse
task. From the repository's root, in the environment of `make test-peers`:

    PYTHONPATH=. .peers-venv/bin/python -m tests.envs.dmc.record
"""

from pathlib import Path

import numpy as np

RECORDED = Path(__file__).parent / "recorded.npz"


def record(name):
    from dm_control import suite
    from dm_control.rl.control import PhysicsError
    from dm_control.suite.utils.randomizers import randomize_limited_and_rotational_joints

    from dac.envs.dmc.envs import make_domain

    varies = [field for field in make_domain(name).varies if field in ("geom_pos", "site_pos", "body_pos", "body_quat")]
    env = suite.load(*name.split("-"), task_kwargs={"random": 0}, environment_kwargs={"flat_observation": True})
    env.physics._make_rendering_contexts = lambda: None  # which would be told of a changed terrain
    rng, found = np.random.default_rng(0), []
    spec = env.action_spec()
    low, high = np.maximum(spec.minimum, -1), np.minimum(spec.maximum, 1)
    physics = env.physics
    thrown = 300 if physics.model.nv < 10 else 0
    several = 20 if physics.model.nv < 50 else 2
    for episode in range(several + thrown):
        env.reset()
        if episode < thrown:
            with physics.reset_context():
                env.task.initialize_episode(physics)
                randomize_limited_and_rotational_joints(physics, env.task.random)
                physics.data.qvel[:] = rng.choice([0, 1, 10]) * rng.standard_normal(physics.model.nv)
        for _ in range(1 if episode < thrown else 40):
            try:
                step = env.step(rng.uniform(low, high) * rng.choice([0.1, 1.0]))
            except PhysicsError:  # thrown too hard
                break
            fields = ("qpos", "qvel", "act", "ctrl", "sensordata")
            state = {field: np.array(getattr(physics.data, field)) for field in fields}
            state |= {field: np.array(getattr(physics.model, field)) for field in varies}
            found.append(state | {"obs": step.observation["observations"], "reward": np.array(step.reward)})
    best = max(range(len(found)), key=lambda index: found[index]["reward"])
    kept = [found[index] for index in (0, best, -1)]
    return {f"{name}/{key}": np.stack([state[key] for state in kept]) for key in kept[0]}


def main():
    from dac.envs.dmc.names import ENTRIES

    arrays = {}
    for name in ENTRIES:
        arrays |= record(name)
    np.savez_compressed(RECORDED, **arrays)


if __name__ == "__main__":
    main()
