"""The numbers of the capacity plan are those of the published runs, the real planner and the real driver."""

import json
from pathlib import Path

import pytest

from dac.cluster.capacity import Measured, Rates, main, markdown, plan_paper, read_measured, rows_of_measured
from dac.core.types import UsageError

ROOT = Path(__file__).parents[2]


def test_the_published_tables_are_what_the_command_prints(capsys):
    """Also those of the documentation. Runs of other tasks that were published later change no number here."""
    main([str(ROOT / "results")])
    now = set(capsys.readouterr().out.splitlines())
    shown = (ROOT / "results/capacity/paper.txt").read_text()
    assert [line for line in shown.splitlines() if line not in now] == []
    page = (ROOT / "docs/studies.md").read_text()
    costs = [
        line
        for line in shown.splitlines()
        if line.startswith("| ") and line.count("|") == 9 and line.split()[1].isdigit()
    ]
    assert len(costs) == 6
    for line in costs:
        assert line in page
    measured = {
        tuple(line.split(" | ")[:5]): line.split(" | ")[5] for line in shown.splitlines() if "H200 | dac | 1" in line
    }
    for task, members, seconds in [
        ("maze", 60, "19 s in the maze"),
        ("SparseHalfCheetah", 40, "89 s on SparseHalfCheetah"),
        ("SparseHopper", 20, "193 s"),
        ("SparseWalker2d", 20, "214 s on SparseWalker2d"),
        ("HumanoidStandup", 10, "450 s on HumanoidStandup"),
    ]:
        assert seconds.split()[0] == measured[f"| {task}", "NVIDIA H200", "dac", "1", str(members)]
        assert seconds in page
    assert "1260 members and 4,544 million agent-steps" in page
    assert "The paper: 1260 members, 4,544 million agent-steps, 3.5 dollars per GPU-hour" in shown


def test_the_whole_paper_is_planned_once():
    """Every member of every experiment of the paper is in one population."""
    jobs = plan_paper(Rates(read_measured(ROOT / "results")))
    names = [name for job in jobs for name in job.serves]
    assert len(names) == len(set(names)) == sum(len(job.config.members()) for job in jobs)
    assert {job.config.algorithm for job in jobs if job.config.training.envs != 1} == {"acktr"}


def measured(members, seconds_per_million, task="SparseHopper", algorithm="dac"):
    return Measured("NVIDIA H200", task, algorithm, members, 1, seconds_per_million, "here")


def test_rates_between_and_beyond_what_was_measured():
    rates = Rates(
        [measured(10, 200.0), measured(30, 100.0), measured(30, 120.0), measured(5, 1000.0, "HumanoidStandup")]
    )
    assert rates.iteration("DelayedHopper", "dac", 10) == pytest.approx(10 * 200e-6)
    assert rates.iteration("DelayedHopper", "dac", 30) == pytest.approx(30 * 110e-6)
    assert rates.iteration("Hopper", "sac", 20) == pytest.approx((2e-3 + 3.3e-3) / 2)
    assert rates.iteration("Hopper", "dac", 1) == pytest.approx(2e-3)  # a small population is no faster
    assert rates.iteration("Hopper", "dac", 60) == pytest.approx(6.6e-3)  # a large one is slower in proportion
    assert rates.iteration("Hopper", "sql", 10) == pytest.approx(4e-3)
    assert rates.iteration("SparseAnt", "ppo", 5) == pytest.approx(5e-3)
    with pytest.raises(UsageError, match="nothing like SparseWalker2d was measured"):
        rates.iteration("SparseWalker2d", "dac", 1)
    assert "| 1,000 | 0.972 |" in markdown(rows_of_measured([measured(5, 1000.0)], 3.5))


def test_what_packing_is_worth_is_that_of_the_raw_lines():
    lines = (ROOT / "results/bench/packing-2-cores.jsonl").read_text().splitlines()
    row, longer = map(json.loads, lines)
    page = " ".join((ROOT / "docs/studies.md").read_text().split())
    rate, alone, ratio = row["agent_steps_per_second"], row["one_process_per_member"], row["ratio"]
    assert f"makes {round(rate, -1):,.0f} agent-steps per second" in page
    assert f"two at a time, {alone:,.0f}: {ratio:.1f} times as many" in page
    assert (row["steps"], longer["steps"]) == (4_000, 40_000)
    assert f"with 40,000 steps it is {longer['ratio']:.1f} times as many" in page
    assert f"and {row['ratio_per_processor_second']:.0f} times as many per second of processor time" in page
    in_training = f"{row['ratio_in_training']:.2f} times and {longer['ratio_in_training']:.2f} times"
    assert f"In training alone it was {in_training}" in page
    assert ratio == pytest.approx(rate / alone)
