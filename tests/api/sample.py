"""What a user writes; `test_types.py` has a type checker read it, and never runs it."""

from typing import assert_type

import gymnasium as gym
import numpy as np
from matplotlib.axes import Axes

import dac


def make_env() -> gym.Env:
    return gym.make("Pendulum-v1")


model = dac.DAC(make_env, alpha=0.5, hidden=(64, 64), seed=0).learn(20_000, progress=False)
assert_type(model, dac.DAC)
action, state = model.predict(np.zeros(3), deterministic=True)
assert_type(action, "np.ndarray")
assert_type(state, None)
model.save("models/pendulum")
assert_type(dac.DAC.load("models/pendulum", env="Pendulum-v1"), dac.DAC)
result = dac.evaluate(model, gym.make("Pendulum-v1"), episodes=5)
assert_type(result, dac.Episodes)
assert_type(result.mean, float)
steps: int = model.num_timesteps

population = dac.Population(dac.SAC, "maze", seeds=range(10), beta=[0.5, 1.0]).learn(1000)
assert_type(population, dac.Population)
assert_type(population.best(by="visited"), dac.Model)
assert_type(population[0], dac.Model)
assert_type(population[1:3], list[dac.Model])
assert_type(population.plot(y="visited"), Axes)
seeds = [member.seed for member in population.members]

run = dac.train("dac", "maze", seeds=range(5), alpha=[0.5, 1.0])
assert_type(run, dac.Run)
assert_type(dac.load("runs/maze-dac-001").model(0), dac.Model)

dac.DAC(3)  # error: Argument 1
dac.DAC("maze", seed="0")  # error: "seed"
dac.DAC("maze", alpha={"of": 0.5})  # error: "alpha"
model.learn("many")  # error: Argument 1
model.predict()  # error: Missing positional argument "observation"
model.fit(10)  # error: has no attribute "fit"
dac.Population(dac.TD3)  # error: Missing positional argument "env"
dac.SARSA("maze")  # error: "SARSA"
