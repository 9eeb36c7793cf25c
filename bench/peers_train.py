"""Other libraries train on our registered tasks: Stable-Baselines3's checker passes on all, its SAC runs on one.

Runs in .bench-venv with this repository on the path: PYTHONPATH=. .bench-venv/bin/python bench/peers_train.py
"""

from __future__ import annotations

import gymnasium as gym
from stable_baselines3 import SAC
from stable_baselines3.common.env_checker import check_env

from dac.envs.registration import IDS


def main() -> None:
    for name in IDS:
        check_env(gym.make(name), skip_render_check=True)
        print(f"{name}: Stable-Baselines3's check_env passes", flush=True)
    model = SAC("MlpPolicy", gym.make("dac/SparseHopper-v0"), learning_starts=100, seed=0)
    model.learn(1000)
    print(
        f"dac/SparseHopper-v0: Stable-Baselines3's SAC trained {model.num_timesteps} steps, {model._n_updates} updates"
    )


if __name__ == "__main__":
    main()
