"""A task of the suite as a Gymnasium environment: with the same seed and actions, a row of `DmcEnvs` to the bit."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from jaxtyping import Float32

from dac.core.errors import UsageError
from dac.envs.batch import World
from dac.envs.dmc.domain import begin_episode
from dac.envs.dmc.envs import diverged, make_domain
from dac.envs.registration import draw_off_screen, has_display


class DmcEnv(gym.Env):
    """One simulation of a task; `gymnasium.make("dac/dmc-cartpole-swingup-v0")` puts the time limit around it.

    `camera` is the number or the name of one of the model's cameras.
    """

    metadata = {"render_modes": ["human", "rgb_array"], "render_fps": 50}  # noqa: RUF012  # as Gymnasium declares it

    def __init__(
        self, task: str, render_mode: str | None = None, width: int = 480, height: int = 480, camera: int | str = 0
    ):
        import mujoco

        self.task, self.domain = task, make_domain(task)
        self.model = self.domain.model
        self.data = mujoco.MjData(self.model)
        low, high = (bound.astype(np.float32) for bound in self.domain.action_range())
        self.low, self.high = low, high
        self.action_space = gym.spaces.Box(low, high, dtype=np.float32)
        size = sum(part.shape[1] for part in self.domain.observe(self._world()))
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (size,), np.float32)
        modes = ["rgb_array", *(["human"] if has_display() else [])]
        fps = round(1 / (self.domain.substeps * self.model.opt.timestep))
        self.metadata = {"render_modes": modes, "render_fps": fps}
        if render_mode not in (None, *modes):
            raise UsageError(f"render_mode must be one of {', '.join(modes)}; got {render_mode!r}")
        cameras = [self.model.camera(index).name for index in range(self.model.ncam)]
        if camera not in cameras and camera not in range(self.model.ncam):
            raise UsageError(f"camera must be below {self.model.ncam} or one of {', '.join(cameras)}; got {camera!r}")
        self.render_mode = render_mode
        self._view = {"width": width, "height": height, "camera_id": self.model.camera(camera).id}
        self._renderer: Any = None
        self._obs = np.zeros(size, np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float32[np.ndarray, " obs"], dict[str, Any]]:
        super().reset(seed=seed)
        begin_episode(self.domain, self.model, self.data, self.np_random)
        if "hfield_data" in self.domain.varies:
            self._close_renderer()  # it has a copy of the terrain
        self._obs = self._observe()
        if self.render_mode == "human":
            self.render()
        return self._obs.copy(), {}

    def step(self, action: Any) -> tuple[Float32[np.ndarray, " obs"], float, bool, bool, dict[str, Any]]:
        import mujoco

        self.data.ctrl[:] = np.clip(action, self.low, self.high)
        seen = np.array([warning.number for warning in self.data.warning])
        mujoco.mj_step(self.model, self.data, self.domain.substeps)
        mujoco.mj_step1(self.model, self.data)
        if diverged(seen, np.array([warning.number for warning in self.data.warning])):
            return self._obs.copy(), 0.0, False, True, {}
        world, self._obs = self._world(), self._observe()
        if self.render_mode == "human":
            self.render()
        return self._obs.copy(), float(self.domain.earn(world)[0]), bool(self.domain.ends(world)[0]), False, {}

    def render(self) -> Any:
        if self.render_mode is None:
            raise UsageError("give render_mode='rgb_array' when the environment is made, to draw it")
        if self._renderer is None:
            from gymnasium.envs.mujoco.mujoco_rendering import MujocoRenderer

            if not has_display():
                draw_off_screen()
            self._renderer = MujocoRenderer(self.model, self.data, None, **self._view)
        return self._renderer.render(self.render_mode)

    def close(self) -> None:
        self._close_renderer()

    def _close_renderer(self) -> None:
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def _world(self) -> World:
        return {name: getattr(self.data, name)[None] for name in self.domain.everything}

    def _observe(self) -> Float32[np.ndarray, " obs"]:
        return np.concatenate([part[0] for part in self.domain.observe(self._world())]).astype(np.float32)
