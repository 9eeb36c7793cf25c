"""Gymnasium environments spread over worker processes."""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import signal
import time
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector.utils import CloudpickleWrapper
from jaxtyping import Float32, Int64

from dac.core.errors import UsageError
from dac.envs.checked import Captured, Layout, MakeEnv, describe
from dac.envs.host import CannotSave, EnvironmentFailure, HostStep
from dac.envs.rows import Answer, Rows, find_common
from dac.envs.spaces import one_line

PATIENCE = 5.0
"""Seconds that worker processes get to end by themselves when they are closed."""


class WorkerDied(EnvironmentFailure):
    """A worker process ended without an answer: its environment called exit, crashed, or was killed."""


class _Failure(NamedTuple):
    """An exception that was raised in a worker process, as text."""

    usage: bool
    message: str
    trace: str
    details: tuple[int | None, str, str] | None = None
    """Row, time and words of an `EnvironmentFailure`."""
    unsaved: bool = False
    """Whether it was a `CannotSave`."""


class Workers:
    """`Rows` spread over processes, a block of neighbouring rows in each."""

    def __init__(self, num: int, workers: int, check_finite: bool):
        self._check_finite = check_finite
        self._context = multiprocessing.get_context("spawn")  # a fork of a process that runs JAX may hang
        self._blocks = [block.tolist() for block in np.array_split(np.arange(num), min(num, workers))]
        self._pipes: list[Connection] = []
        self._processes: list[Any] = []
        self.closed = False

    def open(self, make: MakeEnv) -> Layout:
        self._make = make
        try:
            packed = pickle.dumps(CloudpickleWrapper(make))
        except Exception as error:
            raise UsageError(
                f"env cannot be sent to another process: {type(error).__name__}: {one_line(error)}; "
                "make it import or build what it needs, or ask for 0 workers"
            ) from error
        for block in self._blocks:
            ours, theirs = self._context.Pipe()
            process = self._context.Process(target=_serve, args=(theirs, block, self._check_finite), daemon=True)
            self._pipes.append(ours)
            self._processes.append(process)
            process.start()
            theirs.close()  # so that the end of the worker is the end of the pipe
        return find_common(self._ask("open", [packed] * len(self._blocks)))

    def reset(self, seeds: Sequence[int]) -> tuple[Float32[np.ndarray, "env obs"], Int64[np.ndarray, " env"]]:
        obs, cells = zip(*self._ask("reset", [seeds[block[0] : block[-1] + 1] for block in self._blocks]), strict=True)
        return np.concatenate(obs), np.concatenate(cells)

    def restart(self, rows: Int64[np.ndarray, " row"]) -> Float32[np.ndarray, "row obs"]:
        parts = [rows[(rows >= block[0]) & (rows <= block[-1])] - block[0] for block in self._blocks]
        asked = [number for number, part in enumerate(parts) if len(part)]
        answers = self._ask("restart", [parts[number] for number in asked], asked)
        obs = np.concatenate(answers)
        order = np.concatenate([parts[number] + self._blocks[number][0] for number in asked])
        return obs[np.argsort(order)][np.argsort(np.argsort(rows))]

    def step(self, actions: Float32[np.ndarray, "env action"]) -> Answer:
        answers = self._ask("step", [actions[block] for block in self._blocks])
        steps, cells, said = zip(*answers, strict=True)
        step = HostStep(*(np.concatenate(parts) for parts in zip(*steps, strict=True)))
        if all(successes is None for successes in said):
            return Answer(step, np.concatenate(cells), None)
        blocks = [np.zeros(len(b), np.bool_) if s is None else s for b, s in zip(self._blocks, said, strict=True)]
        return Answer(step, np.concatenate(cells), np.concatenate(blocks))

    def find_unsaved(self) -> str | None:
        """In a process of its own, so that an environment that ends it does not end these."""
        with contextlib.closing(Workers(1, 1, self._check_finite)) as trial:
            try:
                trial.open(self._make)
                return trial._ask("find_unsaved", [None])[0]
            except UsageError as error:
                return one_line(error)

    def capture(self) -> list[Captured]:
        return [one for block in self._ask("capture", [None] * len(self._blocks)) for one in block]

    def restore(self, captured: Sequence[Captured]) -> None:
        self._ask("restore", [captured[block[0] : block[-1] + 1] for block in self._blocks])

    def close(self) -> None:
        self.closed = True
        for pipe in self._pipes:
            pipe.close()  # a worker ends when it finds nobody there
        deadline = time.monotonic() + PATIENCE
        for process in self._processes:
            if process.pid is not None:  # it was started
                process.join(max(0.0, deadline - time.monotonic()))
                if process.is_alive():
                    process.kill()
                    process.join()
            process.close()
        self._pipes, self._processes = [], []

    def _ask(self, method: str, arguments: Sequence[Any], numbers: Sequence[int] | None = None) -> list[Any]:
        """Send every worker, or those of these numbers, its part, and only then wait for the answers."""
        if self.closed:
            raise UsageError("these environments are closed")
        numbers = range(len(arguments)) if numbers is None else numbers
        answers = []
        try:
            for number, argument in zip(numbers, arguments, strict=True):
                with self._notice_death(number, method):
                    self._pipes[number].send((method, argument))
            for number in numbers:
                with self._notice_death(number, method):
                    answers.append(self._pipes[number].recv())
        except BaseException:  # Ctrl-C too: answers still on their way would be taken for those to the next question
            self.close()
            raise
        for answer in answers:
            if isinstance(answer, _Failure):
                error = RuntimeError(f"in a worker process: {answer.message}")
                error.add_note(answer.trace)
                if answer.details is not None:
                    raise EnvironmentFailure(answer.message, *answer.details) from error
                if answer.usage:
                    raise (CannotSave if answer.unsaved else UsageError)(answer.message)
                raise error
        return answers

    @contextlib.contextmanager
    def _notice_death(self, number: int, method: str) -> Any:
        try:
            yield
        except (EOFError, OSError):
            first, last = self._blocks[number][0], self._blocks[number][-1]
            rows = f"environment {first}" if first == last else f"environments {first} to {last}"
            self._processes[number].join(PATIENCE)
            code = self._processes[number].exitcode
            hint = '; does the script start its work under `if __name__ == "__main__":`?' if method == "open" else ""
            raise WorkerDied(f"the worker process of {rows} died with exit code {code}{hint}") from None


def _serve(pipe: Connection, block: Sequence[int], check_finite: bool) -> None:
    """Answer requests in a worker process until the pipe is closed."""
    # Ctrl-C and the end of the terminal are meant for the process that asks, which then closes this one
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    rows = Rows(block, check_finite)
    with contextlib.closing(rows), contextlib.suppress(EOFError, OSError):
        while True:
            method, argument = pipe.recv()
            try:
                answer = getattr(rows, method)(*(() if argument is None else (argument,)))
            except Exception as error:
                usage, unsaved = isinstance(error, UsageError), isinstance(error, CannotSave)
                details = (error.row, error.when, error.what) if isinstance(error, EnvironmentFailure) else None
                answer = _Failure(
                    usage, str(error) if usage else describe(error), traceback.format_exc(), details, unsaved
                )
            pipe.send(answer)
