"""A film of a trained policy: one episode, without exploration, as an mp4."""

from __future__ import annotations

import math
import subprocess
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dac.api import Run
from dac.core.population import pick
from dac.core.types import UsageError, float_dtype
from dac.rundir.names import METRICS


def best_member(run: Run) -> int:
    """Return the member with the highest return in training; in a task without reward, the one with most visited cells.

    A frozen member is chosen only where every member is frozen: it stopped learning on the way. While a run is not
    finished, its evaluations so far decide.
    """

    def score(index: int) -> tuple[bool, float, int]:
        member = run.summary["members"][index]
        best = member["max_return"]  # null stands for NaN, a string for an infinite number
        return not member.get("frozen"), -math.inf if best is None else float(best), member.get("visited_cells", 0)

    def score_so_far(index: int) -> tuple[bool, float, float]:
        frozen, returns, visited = (curves[name][:, index] if name in curves else () for name in columns)
        best = np.fmax.reduce(returns, initial=-math.inf)
        return not any(frozen[-1:]), float(best), max(visited, default=0)

    if run.finished:
        return max(range(len(run.members)), key=score)
    columns = ("frozen", "return", "visited")
    curves = run.metrics if (run.directory / METRICS).exists() else {}
    return max(range(len(run.members)), key=score_so_far)


def record_video(run: Run, path: Path, member: int | None = None, steps: int | None = None) -> tuple[int, float]:
    """Film one episode of a member, the best one if None, and return the episode's length and return."""
    if path.exists():
        raise UsageError(f"{path} exists already; give another name, or remove it first")
    chosen = best_member(run) if member is None else member
    if not 0 <= chosen < len(run.members):
        raise UsageError(f"member must be from 0 to {len(run.members) - 1}, not {chosen}")
    encoder = find_encoder()
    policy = pick(run.policies(), chosen)
    act = jax.jit(lambda obs, key: policy.act(obs, key, explore=False))
    env = _renderable(run.config.task)
    try:
        fps = int(env.metadata.get("render_fps", 30))
        obs, _ = env.reset(seed=run.members[chosen].seed)
        frames, total, done = [_even(env.render())], 0.0, False
        key = jax.random.key(0)
        while not done and (steps is None or len(frames) <= steps):
            action = np.asarray(act(jnp.asarray(obs, float_dtype()), jax.random.fold_in(key, len(frames))), np.float32)
            obs, reward, terminated, truncated, _ = env.step(action)
            total += float(reward)
            done = terminated or truncated
            frames.append(_even(env.render()))
    finally:
        env.close()
    _encode(encoder, path, frames, fps)
    return len(frames) - 1, total


def find_encoder() -> str:
    """Return the path of the ffmpeg that the package `imageio-ffmpeg` carries."""
    try:
        import imageio_ffmpeg  # type: ignore[import-untyped]
    except ImportError:
        raise UsageError("videos need an encoder: pip install 'diversity-actor-critic[video]'") from None
    return imageio_ffmpeg.get_ffmpeg_exe()


def _encode(encoder: str, path: Path, frames: list[np.ndarray], fps: int) -> None:
    """Pipe raw frames through ffmpeg; imageio's own writer forks, which JAX's threads do not survive well."""
    height, width, _ = frames[0].shape
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", str(fps), "-i", "-"]
    film = ["-an", "-c:v", "libx264", "-pix_fmt", "yuv420p", "-movflags", "+faststart", str(path)]
    path.parent.mkdir(parents=True, exist_ok=True)
    data = b"".join(np.ascontiguousarray(frame, np.uint8).tobytes() for frame in frames)
    done = subprocess.run([encoder, "-v", "error", "-n", *raw, *film], input=data, capture_output=True)
    if done.returncode != 0:
        path.unlink(missing_ok=True)
        raise UsageError(f"cannot write {path}: {done.stderr.decode(errors='replace').strip().splitlines()[-1:]}")


def _renderable(task: str) -> Any:
    """Make the task as a Gymnasium environment that draws itself, actions in [-1, 1], observations flat."""
    import gymnasium

    from dac.envs import registration

    registration.register()
    prefix, _, rest = task.partition(":")
    name = {"maze": "dac/FourRoomMaze-v0"}.get(task, rest if prefix == "gym" else f"dac/{task}-v0")
    try:
        env = gymnasium.make(name, render_mode="rgb_array")
    except (gymnasium.error.Error, ImportError, ValueError) as error:
        raise UsageError(f"{task} cannot be filmed: {str(error).splitlines()[0]}") from None
    env = gymnasium.wrappers.RescaleAction(env, np.float32(-1), np.float32(1))
    return gymnasium.wrappers.FlattenObservation(env)


def _even(frame: np.ndarray) -> np.ndarray:
    """Cut a frame to even sides, as the encoder asks."""
    return frame[: frame.shape[0] // 2 * 2, : frame.shape[1] // 2 * 2]
