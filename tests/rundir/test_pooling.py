"""Members of several runs in one: each goes on as it would have alone."""

import shutil

import numpy as np
import pytest

import dac
from dac.core.types import UsageError
from dac.rundir.writing import Recorder
from dac.training.session import Session
from tests.common import everything

TINY = {"hidden": (8, 8), "batch_size": 16, "update_after": 40, "random_steps": 30, "eval_every": 60}
LENGTH = {"steps": 180, "capacity": 90, "checkpoint_every": 60}
ON_POLICY = {"hidden": (8, 8), "rollout": 30, "minibatches": 3, "epochs": 2, "random_steps": 0, "eval_every": 60}


def stop_at_120(evaluation):
    return "half way" if evaluation.step == 120 else None


def columns(run, member):
    """Every cell of a member's rows but its number, and that of settings that no longer differ."""
    return {name: column[:, member] for name, column in run.metrics.items() if name not in ("member", "beta", "gamma")}


def final_states(monkeypatch):
    """Everything that the future of each session's loop depends on, in the order in which sessions end."""
    found = []
    real = Session.close
    monkeypatch.setattr(Session, "close", lambda self: (found.append(everything(self.loop)), real(self))[1])
    return found


CASES = [
    ("dac", "maze", TINY | LENGTH),
    ("sac", "SparseHopper", TINY | LENGTH | {"envs": 2, "update_ratio": 0.5, "eval_every": 60}),
    pytest.param("dac", "SparseHopper", TINY | LENGTH | {"alpha": "adapt", "replay": "host"}, marks=pytest.mark.slow),
    ("sac", "gym:Pendulum-v1", TINY | LENGTH | {"eval_every": 60}),
    pytest.param("ppo", "maze", ON_POLICY | LENGTH, marks=pytest.mark.slow),
    pytest.param("rnd", "DelayedHopper", TINY | LENGTH | {"bonus_hidden": (8, 8)}, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("algorithm", "task", "settings"), CASES)
def test_a_pooled_member_goes_on_as_it_would_have_alone(tmp_path, monkeypatch, algorithm, task, settings):
    """Two runs of three members stop half way; of each some go on together, and both go on by themselves."""
    given = {"seeds": [0, 1, 2], **settings}
    parts = {
        "a": dac.train(algorithm, task, out=tmp_path / "a", watchers=[stop_at_120], gamma=0.9, **given),
        "b": dac.train(algorithm, task, out=tmp_path / "b", watchers=[stop_at_120], gamma=[0.95], **given),
    }
    picks = [("b", 2), ("a", 0), ("b", 0)]
    pooled = dac.pool([(parts[name].directory, index) for name, index in picks], tmp_path / "pooled")
    assert pooled.last_checkpoint() == 120
    assert [m.label() for m in pooled.members] == ["seed 2, gamma 0.95", "seed 0, gamma 0.9", "seed 0, gamma 0.95"]
    assert pooled.policies() is not None
    states = final_states(monkeypatch)
    whole = {name: run.resume() for name, run in parts.items()}
    pooled = pooled.resume()
    assert pooled.metrics["step"][:, 0].tolist() == [60, 120, 180]
    for k, (name, index) in enumerate(picks):
        alone, here = columns(whole[name], index), columns(pooled, k)
        assert alone.keys() == here.keys()
        for column in alone:
            np.testing.assert_array_equal(alone[column], here[column], err_msg=column)
        together, by_itself = states[2], states["ab".index(name)]
        assert together.keys() == by_itself.keys()
        for array in together:
            each = len(together[array]) // 3
            one, other = (s[array][i * each : (i + 1) * each] for s, i in ((together, k), (by_itself, index)))
            np.testing.assert_array_equal(one, other, err_msg=array)
    summary = pooled.summary["members"]
    assert [entry["max_return"] for entry in summary] == [
        whole[n].summary["members"][i]["max_return"] for n, i in picks
    ]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "a"
    return dac.train("dac", "maze", seeds=[0, 1], alpha=[0.5, 1.0], out=out, watchers=[stop_at_120], **TINY | LENGTH)


def test_what_was_noted_of_a_member_goes_with_it(stopped, tmp_path, monkeypatch):
    """A frozen member stays frozen under its new number, and a warning names that number."""
    notes = Recorder.notes

    def noted(self):
        return notes(self) | {"warnings": {"3 q_mean": "member 3 (seed 1, alpha 1): Q explodes (q_mean 2e+06)"}}

    shutil.copytree(stopped.directory, tmp_path / "b")
    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "notes", noted)
        patch.setattr("dac.training.health.Health.save", lambda self: {"3": {"step": 90, "cause": "x is not finite"}})
        dac.resume(tmp_path / "b", 180)
    pooled = dac.pool([(tmp_path / "b", 0), (tmp_path / "b", 3)], tmp_path / "pooled").resume(240)
    assert [entry["frozen"] for entry in pooled.summary["members"]] == [None, {"step": 90, "cause": "x is not finite"}]
    assert "member 1 (seed 1, alpha 1): Q explodes (q_mean 2e+06)" in pooled.summary["warnings"]
    assert pooled.metrics["frozen"][-1].tolist() == [0, 1]


def test_what_cannot_be_pooled_is_named(stopped, tmp_path):
    other = TINY | LENGTH | {"seeds": [0, 1], "alpha": [0.5, 1.0]}

    def refused(words, picks, out="pooled"):
        with pytest.raises(UsageError, match=words) as caught:
            dac.pool(picks, tmp_path / out)
        assert "\n" not in str(caught.value)

    rarer = dac.train("dac", "maze", out=tmp_path / "rarer", **other | {"steps": 120, "eval_every": 120})
    further = dac.train("dac", "maze", out=tmp_path / "further", **other)
    refused("at least one member", [])
    refused("has members 0 to 3, not 4", [(stopped, 4)])
    refused("rarer cannot be pooled with .*a: steps is 120 and not 180", [(stopped, 0), (rarer, 0)])
    refused("latest checkpoint is of step 180 and not 120", [(stopped, 0), (further, 0)])
    refused("exists already", [(stopped, 0)], "rarer")
    shutil.rmtree(tmp_path / "rarer/checkpoint")
    refused("has no checkpoint from which", [(tmp_path / "rarer", 0)])
    damaged = next((tmp_path / "further/checkpoint").glob("state-000000000180*"))
    damaged.write_bytes(b"")
    refused("is damaged", [(tmp_path / "further", 0)])
    assert not (tmp_path / "pooled").exists()
