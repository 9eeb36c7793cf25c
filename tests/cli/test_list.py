"""`dac list`: what it shows, what a filter leaves, and what it says where nothing is left."""

import pytest

from dac.cli import main
from dac.tasks import listed


def rows(capsys, *words):
    assert main(["list", *words]) == 0
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_every_task_has_its_sizes_extra_steps_and_beta(capsys):
    found = {row[0]: row for row in rows(capsys, "tasks") if row}
    assert set(listed()) <= set(found)
    assert found["SparseHopper"][:5] == ["SparseHopper", "11", "3", "1M", "0.04"]
    assert found["maze"][:4] == ["maze", "2", "2", "300k"]
    assert found["dmc:dog-run"][:6] == ["dmc:dog-run", "223", "38", "dmc", "1M", "0.0026"]
    assert {"dmc:DOMAIN-TASK", "gym:ID", "python:MODULE:FACTORY"} <= set(found)


def test_a_filter_leaves_the_names_that_contain_it(capsys):
    names = [row[0] for row in rows(capsys, "tasks", "SPARSE")[1:]]
    assert names == [name for name in listed() if "sparse" in name.lower()]
    assert {"SparseAnt", "dmc:cartpole-swingup_sparse"} <= set(names)
    assert {row[0].partition("-")[0] for row in rows(capsys, "tasks", "dmc:fish")[1:]} == {"dmc:fish"}
    assert [row[0] for row in rows(capsys, "algorithms", "sac-")] == ["sac-div"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("tasks", "dmc:walker-rnu"), "no name contains 'dmc:walker-rnu'; did you mean dmc:walker-run?"),
        (("algorithms", "xyzzy"), "no name contains 'xyzzy'"),
    ],
)
def test_a_filter_that_leaves_nothing_is_one_line(capsys, words, said):
    assert main(["list", *words]) == 2
    assert capsys.readouterr().err == f"dac: {said}\n"
