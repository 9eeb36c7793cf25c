"""A film of a trained policy: one episode, without exploration, as an mp4."""

from __future__ import annotations

import contextlib
import inspect
import math
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dac.api import Run
from dac.core.errors import needs_extra
from dac.core.population import pick
from dac.core.types import UsageError, float_dtype
from dac.envs.pace import Pace
from dac.rundir.names import METRICS
from dac.tasks import find_factory

LONGEST_FILM = 1000
"""Steps after which a film ends where the environment has no time limit."""


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
    with _filming(run.config.task), contextlib.closing(_renderable(run.config.task, run.config.training.pace)) as env:
        fps = int(env.metadata.get("render_fps", 30))
        limit = LONGEST_FILM if steps is None and _is_endless(env) else steps
        obs, _ = env.reset(seed=run.members[chosen].seed)
        frames, total, done = [_draw(env)], 0.0, False
        key = jax.random.key(0)
        while not done and (limit is None or len(frames) <= limit):
            action = np.asarray(act(jnp.asarray(obs, float_dtype()), jax.random.fold_in(key, len(frames))), np.float32)
            obs, reward, terminated, truncated, _ = env.step(action)
            total += float(reward)
            done = terminated or truncated
            frames.append(_draw(env))
    _encode(encoder, path, frames, fps)
    return len(frames) - 1, total


@contextlib.contextmanager
def _filming(task: str):
    """Say in one line what kept an environment from being made, stepped or drawn."""
    import gymnasium

    try:
        yield
    except UsageError:
        raise
    except gymnasium.error.DependencyNotInstalled as error:  # it names the command that installs it
        raise UsageError(f"{task} cannot be filmed: {_line(error)}") from error
    except Exception as error:
        raise UsageError(f"{task} cannot be filmed: {type(error).__name__}: {_line(error)}") from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def find_encoder() -> str:
    """Return the path of the ffmpeg that the package `imageio-ffmpeg` carries."""
    with needs_extra("video", "a film"):
        import imageio_ffmpeg  # type: ignore[import-untyped]
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


def _renderable(task: str, pace: Pace) -> Any:
    """Make the task as a Gymnasium environment that draws itself, actions in [-1, 1], observations flat."""
    import gymnasium

    from dac.envs import registration
    from dac.envs.ids import dmc_id
    from dac.envs.paced_host import pace_one

    registration.register()
    prefix, _, rest = task.partition(":")
    if prefix == "python":
        env = _make_own(find_factory(rest))
    else:
        others = {"gym": rest, "dmc": dmc_id(rest)}
        name = {"maze": "dac/FourRoomMaze-v0"}.get(task, others.get(prefix, f"dac/{task}-v0"))
        env = gymnasium.make(name, render_mode="rgb_array")
    if env.render_mode != "rgb_array":
        env.close()
        raise UsageError(
            f"{task} cannot be filmed: its render_mode is {env.render_mode!r}; an environment that is to be filmed "
            "takes render_mode='rgb_array' when it is made, and its render() returns an image"
        )
    env = pace_one(env, pace)
    env = gymnasium.wrappers.RescaleAction(env, np.float32(-1), np.float32(1))
    return gymnasium.wrappers.FlattenObservation(env)


def _make_own(factory: Callable[..., Any]) -> Any:
    """Make an environment of the user's own, drawing itself if its factory lets one ask for that."""
    takes = inspect.signature(factory).parameters
    variadic = any(parameter.kind == parameter.VAR_KEYWORD for parameter in takes.values())
    return factory(render_mode="rgb_array") if "render_mode" in takes or variadic else factory()


def _is_endless(env: Any) -> bool:
    from dac.envs.checked import NO_LIMIT, find_horizon

    return find_horizon(env) == NO_LIMIT


def _draw(env: Any) -> np.ndarray:
    """Return what an environment draws, cut to even sides, as the encoder asks."""
    frame = env.render()
    if not isinstance(frame, np.ndarray) or frame.ndim != 3 or frame.shape[2] != 3:
        got = f"an array of shape {frame.shape}" if isinstance(frame, np.ndarray) else type(frame).__name__
        raise UsageError(f"it cannot be filmed: render() must return an image (height, width, 3); got {got}")
    return frame[: frame.shape[0] // 2 * 2, : frame.shape[1] // 2 * 2]
