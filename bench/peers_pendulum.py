"""Stable-Baselines3's PPO and TD3 on Pendulum-v1, at the settings of our presets: do we reach the same returns?

    .bench-venv/bin/python bench/peers_pendulum.py --algorithm ppo
    .bench-venv/bin/python bench/peers_pendulum.py --algorithm td3

Each seed ends with deterministic episodes; a row per seed goes to the CSV, in place of that algorithm's old rows.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch
from gymnasium.wrappers import RescaleAction
from stable_baselines3 import PPO, TD3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecNormalize

STEPS = {"ppo": 200_000, "td3": 20_000}


def make_env() -> gym.Env:
    """Actions in [-1, 1], as ours: PPO's sigma of 1 is then the same exploration."""
    return Monitor(RescaleAction(gym.make("Pendulum-v1"), -1.0, 1.0))


def train_ppo(seed: int, steps: int) -> tuple[BaseAlgorithm, Callable[[VecEnv], VecEnv]]:
    """Our preset ("ppo", "gym:Pendulum-v1")."""
    gamma = 0.98
    envs = VecNormalize(make_vec_env(make_env, n_envs=4, seed=seed), clip_obs=10, clip_reward=10, gamma=gamma)
    model = PPO(
        "MlpPolicy",
        envs,
        n_steps=512,
        batch_size=256,
        n_epochs=10,
        gamma=gamma,
        gae_lambda=0.95,
        learning_rate=lambda remaining: 3e-4 * remaining,
        clip_range=0.2,
        clip_range_vf=None,
        vf_coef=0.25,  # of the squared error; ours is 0.5 of half of it
        ent_coef=0.0,
        max_grad_norm=0.5,
        policy_kwargs={"net_arch": {"pi": [64, 64], "vf": [64, 64]}, "activation_fn": torch.nn.Tanh},
        seed=seed,
        device="cpu",
    )
    model.learn(steps)

    def normalised(env: VecEnv) -> VecEnv:
        fixed = VecNormalize(env, training=False, norm_reward=False, clip_obs=10)
        fixed.obs_rms = envs.obs_rms
        return fixed

    return model, normalised


def train_td3(seed: int, steps: int) -> tuple[BaseAlgorithm, Callable[[VecEnv], VecEnv]]:
    """Our preset ("td3", "gym:Pendulum-v1")."""
    model = TD3(
        "MlpPolicy",
        make_env(),
        learning_rate=1e-3,
        batch_size=128,
        learning_starts=1000,
        train_freq=1,
        gradient_steps=1,
        gamma=0.99,
        tau=0.005,
        policy_delay=2,
        target_policy_noise=0.2,
        target_noise_clip=0.5,
        action_noise=NormalActionNoise(np.zeros(1), 0.1 * np.ones(1)),
        policy_kwargs={"net_arch": [64, 64]},
        seed=seed,
        device="cpu",
    )
    model.learn(steps)
    return model, lambda env: env


def evaluate(model: BaseAlgorithm, wrap: Callable[[VecEnv], VecEnv], seed: int, episodes: int) -> float:
    env = wrap(DummyVecEnv([make_env]))
    env.seed(10_000 + seed)
    return float(evaluate_policy(model, env, n_eval_episodes=episodes, deterministic=True)[0])


def write(path: Path, algorithm: str, rows: list[dict[str, object]]) -> None:
    """The rows of this algorithm anew, those of others kept."""
    kept: list[dict[str, object]] = []
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            kept = [dict(row) for row in csv.DictReader(file) if row["algorithm"] != algorithm]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["algorithm", "seed", "steps", "mean_return"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(kept + rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--algorithm", choices=["ppo", "td3"], required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--steps", type=int, help="environment steps (default: 200,000 for ppo, 20,000 for td3)")
    # returns of single episodes have a standard deviation of some 90: ten of them would drown the seeds
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path("results/baselines/pendulum-sb3.csv"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    steps = options.steps or STEPS[options.algorithm]
    train = {"ppo": train_ppo, "td3": train_td3}[options.algorithm]
    rows: list[dict[str, object]] = []
    for seed in options.seeds:
        model, wrap = train(seed, steps)
        mean = evaluate(model, wrap, seed, options.episodes)
        rows.append({"algorithm": options.algorithm, "seed": seed, "steps": steps, "mean_return": mean})
        print(f"{options.algorithm} seed {seed}: {mean:.1f}", flush=True)
        write(options.out, options.algorithm, rows)
    returns = np.array([row["mean_return"] for row in rows])
    print(f"{options.algorithm}: {returns.mean():.1f} ± {returns.std():.1f} over {len(rows)} seeds")


if __name__ == "__main__":
    main()
