"""Steps per second of other libraries' SAC on HalfCheetah: one update per step, 2 x 256, batch 256.

This file runs in an environment of its own (.bench-venv), which has Stable-Baselines3 and SBX and not `dac`.

    python bench/peers.py sbx|sb3 [--steps 500]
"""

from __future__ import annotations

import argparse
import time


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("library", choices=["sbx", "sb3"])
    parser.add_argument("--steps", type=int, default=500)
    options = parser.parse_args()
    import gymnasium as gym

    if options.library == "sbx":
        from sbx import SAC
    else:
        from stable_baselines3 import SAC
    settings = {"learning_starts": 200, "train_freq": 1, "gradient_steps": 1, "batch_size": 256, "ent_coef": 0.2}
    settings["policy_kwargs"] = {"net_arch": [256, 256]}
    model = SAC("MlpPolicy", gym.make("HalfCheetah-v5"), verbose=0, seed=0, **settings)
    model.learn(400)  # compiles, and fills the replay buffer
    start = time.perf_counter()
    model.learn(options.steps, reset_num_timesteps=False)
    print(options.steps / (time.perf_counter() - start))


if __name__ == "__main__":
    main()
