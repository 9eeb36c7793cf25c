"""A population is a sequence of models that learn together."""

import sys

import matplotlib.pyplot as plt
import numpy as np
import pytest

import dac
from tests.api.test_models import TINY


@pytest.fixture(scope="module")
def maze():
    return dac.Population(dac.DAC, "maze", seeds=[4, 7], alpha=[0.5, 1.0], **TINY).learn(90)


def test_members_are_models_in_the_order_of_a_run(maze):
    assert len(maze) == 4
    assert [(m.seed, m.hyper["alpha"]) for m in maze.members] == [(4, 0.5), (7, 0.5), (4, 1.0), (7, 1.0)]
    assert [type(model) for model in maze] == [dac.DAC] * 4
    assert maze[-1].config.hyper["alpha"] == maze[3].config.hyper["alpha"] == 1.0
    assert [m.config.seeds for m in maze[1:3]] == [(7,), (4,)]
    assert repr(maze) == "<Population of 4 DAC on maze, seeds 4, 7, alpha 0.5, 1: 90 steps each>"
    assert repr(maze[1]) == "<DAC on maze, seed 7, alpha 0.5: 90 steps (member 1 of 4)>"
    with pytest.raises(IndexError, match="member must be from 0 to 3, not 4"):
        maze[4]


def test_the_best_is_the_mean_of_the_last_evaluations(maze):
    visited = maze.metrics["visited"]
    assert maze.best(by="visited")._index == int(visited.mean(axis=0).argmax())
    assert maze.best(by="visited", last=1)._index == int(visited[-1].argmax())
    assert maze.best()._index == 0  # no reward: all are equal
    with pytest.raises(dac.UsageError, match="unknown metric 'cells'"):
        maze.best(by="cells")
    with pytest.raises(dac.UsageError, match="last must be a whole number"):
        maze.best(last=0)


def test_a_frozen_member_is_not_the_best(maze, monkeypatch):
    best = maze.best(by="visited")._index
    marked = maze.metrics["frozen"].copy()
    marked[:, best] = 1
    real = maze.metrics
    monkeypatch.setattr(type(maze._agents), "metrics", property(lambda self: real | {"frozen": marked}))
    assert maze.best(by="visited")._index != best


def test_evaluation_is_of_every_member(maze):
    found = maze.evaluate(episodes=2)
    assert len(found) == 4
    assert all((one.lengths == 1000).all() and one.returns.shape == (2,) for one in found)
    np.testing.assert_array_equal(maze[2].evaluate(episodes=2).lengths, found[2].lengths)


def test_the_table_is_long_whatever_is_installed(maze, monkeypatch):
    import polars

    table = maze.to_dataframe()
    assert len(table) == 12
    assert {"member", "seed", "alpha", "step", "return", "visited"} <= set(table.columns)
    assert table.groupby("alpha")["visited"].max().shape == (2,)
    assert table["step"].tolist() == [30] * 4 + [60] * 4 + [90] * 4
    monkeypatch.setitem(sys.modules, "pandas", None)
    other = maze.to_dataframe()
    assert isinstance(other, polars.DataFrame)
    assert other["member"].to_list() == table["member"].tolist()
    monkeypatch.setitem(sys.modules, "polars", None)
    plain = maze.to_dataframe()
    assert isinstance(plain, dict)
    np.testing.assert_array_equal(plain["visited"], table["visited"])


def test_the_plot_has_a_line_per_combination(maze):
    axes = maze.plot(y="visited")
    assert [line.get_label() for line in axes.get_lines()] == ["alpha 0.5", "alpha 1"]
    visited = maze.metrics["visited"]
    np.testing.assert_allclose(axes.get_lines()[1].get_ydata(), visited[:, 2:].mean(axis=1))
    np.testing.assert_allclose(axes.get_lines()[0].get_xdata(), [30, 60, 90])
    assert axes.get_ylabel() == "visited cells"
    assert maze.plot(x="updates", ax=axes) is axes
    plt.close("all")


def test_a_population_is_saved_and_goes_on(maze, tmp_path):
    maze.save(tmp_path / "all")
    loaded = dac.Population.load(tmp_path / "all")
    assert len(loaded) == 4
    loaded.learn(30)
    assert loaded.num_timesteps == 120
    assert loaded.metrics["step"][:, 0].tolist() == [30, 60, 90, 120]
    assert len(dac.load(tmp_path / "all").population()) == 4
    again = dac.Population("dac", "maze", seeds=[4, 7], alpha=[0.5, 1.0], **TINY).learn(120)
    for name in ("visited", "q_mean"):
        np.testing.assert_array_equal(loaded.metrics[name], again.metrics[name])


def test_a_member_is_saved_alone_and_says_what_it_cannot_do(maze, tmp_path):
    maze[3].save(tmp_path / "one")
    one = dac.DAC.load(tmp_path / "one")
    assert one.config.seeds == (7,)
    assert one.config.hyper["alpha"] == 1.0
    np.testing.assert_array_equal(one.metrics["visited"], maze[3].metrics["visited"])
    obs = np.array([[1.0, 2.0], [30.0, 4.0]])
    np.testing.assert_array_equal(one.predict(obs)[0], maze[3].predict(obs)[0])
    assert dac.load(tmp_path / "one").summary["members"][0]["seed"] == 7
    with pytest.raises(dac.UsageError, match="has no checkpoint to go on from: it can act, but not learn"):
        one.learn(30)
    with pytest.raises(dac.UsageError, match="a member of a population, which learns as a whole"):
        maze[0].learn(30)


def test_what_is_wrong_is_said_in_one_line():
    with pytest.raises(dac.UsageError, match=r"a population has seeds: give seeds=range\(10\)"):
        dac.Population(dac.DAC, "maze", seed=3)
    with pytest.raises(dac.UsageError, match=r"a population is of an algorithm's class, such as dac\.DAC"):
        dac.Population(dac.Model, "maze")
    with pytest.raises(dac.UsageError, match="there are no evaluations yet; call learn first"):
        dac.Population(dac.DAC, "maze", seeds=2).best()
