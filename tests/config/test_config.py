"""Configurations: what is given, completed and checked; TOML and back; what is refused, and in which words."""

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dac.algorithms import owners
from dac.config import Training, describe, parse_seeds, parse_text, resolve
from dac.core.types import UsageError


def test_defaults_come_from_the_algorithm_then_the_task_then_the_user():
    config = resolve("dac", "maze")
    assert config.hyper["alpha"] == 0.5
    assert config.hyper["gamma"] == 0.999  # the maze's
    assert config.training.steps == 300_000
    assert resolve("dac", "maze", settings={"gamma": 0.9}).hyper["gamma"] == 0.9


def test_lists_become_a_population():
    config = resolve("dac", "maze", seeds="0:3", settings={"alpha": [0.5, 1.0], "beta": 2})
    members = config.members()
    assert len(members) == 6
    assert config.varied() == ["alpha"]
    assert {(m.seed, m.hyper["alpha"], m.hyper["beta"]) for m in members} == {
        (s, a, 2.0) for s in range(3) for a in (0.5, 1.0)
    }
    assert config.make_algorithm().algorithm.hidden == (256, 256)


def test_lists_can_be_taken_together(tmp_path):
    """The first seed with the first numbers; what is given once stands for all, and a value may come twice."""
    given = {"combine": "zip", "alpha": [0.5, 0.5, 1.0], "beta": 2, "gamma": [0.9]}
    config = resolve("dac", "maze", seeds=[4, 4, 7], settings=given)
    seen = [(m.seed, m.hyper["alpha"], m.hyper["beta"], m.hyper["gamma"]) for m in config.members()]
    assert seen == [(4, 0.5, 2.0, 0.9), (4, 0.5, 2.0, 0.9), (7, 1.0, 2.0, 0.9)]
    assert config.varied() == ["alpha"]
    assert config.members()[2].label() == "seed 7, alpha 1"
    path = tmp_path / "config.toml"
    path.write_text(config.to_toml())
    assert resolve(file=path) == config
    alone = config.alone(config.members()[2])
    assert (
        alone.fingerprint()
        == resolve("dac", "maze", seeds=7, settings={"beta": 2, "gamma": 0.9, "alpha": 1.0}).fingerprint()
    )
    assert [m.seed for m in resolve("dac", "maze", seeds=3, settings=given).members()] == [3, 3, 3]
    with pytest.raises(UsageError, match="equally long; alpha has 3 and seeds has 4"):
        resolve("dac", "maze", seeds=range(4), settings=given)


def test_a_configuration_survives_its_own_toml(tmp_path):
    given = {"alpha": [0.1, 0.9], "clip": math.inf, "hidden": (8, 4), "steps": 2000, "policy_q": "min"}
    config = resolve("dac", "maze", seeds=[4, 2], settings=given)
    path = tmp_path / "config.toml"
    path.write_text(config.to_toml())
    assert resolve(file=path) == config
    changed = resolve(file=path, settings={"steps": 3000}, seeds=1)
    assert changed.training.steps == 3000
    assert changed.seeds == (1,)


def test_a_setting_that_came_later_leaves_the_fingerprints_of_old_runs_as_they_were():
    """The fingerprint of this configuration in version 0.1, which had no `network`, `activation` and `norm`."""
    config = resolve("dac", "maze", seeds=[4, 2], settings={"alpha": [0.1, 0.9], "hidden": (8, 4), "steps": 2000})
    assert config.hyper["norm"] == "none"
    assert config.fingerprint() == "c2ae436f64f26e5e2cecc45950933b37"
    other = resolve("dac", "maze", seeds=[4, 2], settings={"alpha": [0.1, 0.9], "hidden": (8, 4), "norm": "layer"})
    assert other.fingerprint() != config.fingerprint()


def test_alpha_adapt_is_the_state_dependent_alpha():
    config = resolve("dac", "maze", settings={"alpha": "adapt"})
    assert config.hyper["adapt"] is True
    assert config.make_algorithm().algorithm.adapt


@pytest.mark.parametrize(
    ("text", "seeds"), [("7", (7,)), ("0:3", (0, 1, 2)), ("5,1", (5, 1)), (3, (3,)), (range(2), (0, 1))]
)
def test_seeds(text, seeds):
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize(
    "text", ["", "a", "3:1", "1:1", "-1", "1,1", "0:1:2", "1.5", [], [1.0], [True], 2**32, "0:99999999999"]
)
def test_bad_seeds(text):
    with pytest.raises(UsageError, match="bad seeds"):
        parse_seeds(text)


BAD = [
    ({"alpha": 2}, "alpha must be a number from 0 to 1"),
    ({"alpha": [0.5, -1]}, "alpha must be a number from 0 to 1"),
    ({"alpha": math.nan}, "alpha must be a number"),
    ({"alpha": []}, "empty list"),
    ({"alpha": [0.5, 0.5]}, "same value twice"),
    ({"beta": 0}, "beta must be a number of at least"),
    ({"hidden": [0]}, "layer sizes"),
    ({"hidden": 3}, "layer sizes"),
    ({"policy_q": "max"}, "one of first, min"),
    ({"adapt": 1}, "true or false"),
    ({"steps": 0}, "steps must be from 1"),
    ({"steps": 10**10}, "steps must be from 1"),
    ({"steps": 1.5}, "whole number"),
    ({"batch_size": 0}, "batch_size"),
    ({"update_ratio": 0.5}, "whole number of at least 1"),
    ({"envs": 7}, "multiple"),
    ({"aplha": 1}, "did you mean alpha"),
    ({"target_noise": 1}, "unknown setting 'target_noise' for dac: it is a setting of td3 "),
    ({"bonus_scale": 1}, "it is a setting of `bonus=rnd`, `bonus=maxent-state`, `bonus=novelty`, `bonus=count` "),
    ({"steps": [1, 2]}, "whole number"),
]


@pytest.mark.parametrize(("given_settings", "words"), BAD)
def test_bad_settings_are_named(given_settings, words):
    with pytest.raises(UsageError, match=words) as caught:
        resolve("dac", "maze", settings=given_settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("algorithm = ", "not valid TOML"),
        ('algorithm = "dac"', "needed"),
        ('algorithm = "nope"\ntask = "maze"', "unknown algorithm"),
        ('algorithm = "dac"\ntask = "maze"\nsteps = 3', "unknown key 'steps'"),
        ('algorithm = "dac"\ntask = "maze"\ntraining = 3', "must be a table"),
        ('algorithm = "dac"\ntask = "maze"\nseeds = "x"', "bad seeds"),
        ('algorithm = 3\ntask = "maze"', "unknown algorithm"),
        ('algorithm = "dac"\ntask = 3', "task must be a name"),
        ('algorithm = "dac"\ntask = "maze"\n[hyper]\nalpha = "high"', "alpha must be"),
    ],
)
def test_bad_files(tmp_path, content, words):
    path = tmp_path / "c.toml"
    path.write_text(content)
    with pytest.raises(UsageError, match=words):
        resolve(file=path)


def test_a_missing_or_binary_file(tmp_path):
    with pytest.raises(UsageError, match="no such file"):
        resolve(file=tmp_path / "none.toml")
    path = Path(tmp_path / "b.toml")
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not valid TOML"):
        resolve(file=path)


def test_every_setting_is_explained():
    for owner in (*owners("dac"), *owners("sql"), Training):
        for name, _, text, _ in describe(owner):
            assert len(text) > 10, name


values = st.one_of(
    st.floats(), st.integers(), st.text(max_size=5), st.booleans(), st.none(), st.lists(st.floats(), max_size=3)
)


@settings(max_examples=300, deadline=None)
@given(
    name=st.sampled_from([n for owner in owners("dac") for n, *_ in describe(owner)] + ["steps", "envs", "x"]),
    value=values,
)
def test_any_value_is_taken_or_refused_in_one_line(name, value):
    try:
        config = resolve("dac", "maze", settings={name: value})
    except UsageError as error:
        message = str(error)
    else:
        message = "taken"
        assert config.members()
        assert config.make_algorithm().setting("hidden")
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("alpha", "0.5,1", [0.5, 1.0]),
        ("alpha", "adapt", "adapt"),
        ("clip", "inf", math.inf),
        ("steps", "300_000", 300_000),
        ("steps", "1e3", 1000),
        ("steps", "2.5e1", 25),
        ("steps", "1.5", "1.5"),
        ("steps", "1e-3", "1e-3"),
        ("steps", "inf", "inf"),
        ("steps", "nan", "nan"),
        ("hidden", "64,64", (64, 64)),
        ("adapt", "yes", True),
        ("policy_q", "min", "min"),
    ],
)
def test_text_is_read_by_the_settings_type(name, text, value):
    assert parse_text(name, text, "dac") == value
