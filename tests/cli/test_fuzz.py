"""Random requests: every invalid one is answered by one line and exit code 2, every valid one runs."""

import math
import string
import tempfile
from pathlib import Path
from typing import Literal, get_args, get_origin

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, example, given, settings

from dac.algorithms import ALGORITHMS
from dac.cli import main
from dac.config import Training, resolve
from dac.config.schema import fields_of, settings_of
from dac.config.text import to_toml

TASKS = ["maze", "target", "SparseHopper", "HalfCheetah", "gym:Pendulum-v1"]
words = st.text(string.ascii_lowercase + string.digits + "_-.,:/\\\"'[]= ", min_size=1, max_size=12)
fuzzing = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))

# whole numbers of the training section have their bounds in `resolve`
LOWEST = {"random_steps": 0, "checkpoint_every": 0}


def all_settings(algorithm):
    return fields_of(Training) | settings_of(algorithm, ALGORITHMS[algorithm].bonus)


def is_number(text, kind):
    try:
        number = float(text.replace("_", "") if kind is int else text)
        return kind is float or number.is_integer()  # 1e3 is a whole number, too
    except ValueError:
        return False


def outside(name, kind, field):
    """Values, as text, that the setting cannot have."""
    low = field.metadata.get("low", 0.0 if kind is float else LOWEST.get(name, 1))
    high = field.metadata.get("high", math.inf)
    if kind is float:
        bad = [st.just("nan"), words.filter(lambda w: not any(is_number(part, float) for part in w.split(",")))]
        if math.isfinite(low):
            bad.append(st.floats(max_value=low, exclude_max=True, allow_nan=False).map(repr))
        if math.isfinite(high):
            bad.append(st.floats(min_value=high, exclude_min=True, allow_nan=False).map(repr))
        return st.one_of(bad)
    if kind is int:
        text = words.filter(lambda w: not is_number(w, int))
        return st.one_of(text, st.just("1.5"), st.just(""), st.integers(-(10**9), low - 1).map(str))
    if kind is bool:
        return words.filter(lambda w: w.lower() not in ("true", "false", "yes", "no"))
    if get_origin(kind) is Literal:
        return words.filter(lambda w: w not in get_args(kind))
    return st.sampled_from(["0", "8,0", "-8", "a", "8,,8", "1.5", "", "99999999"])  # layer sizes


def answer(arguments, capsys):
    capsys.readouterr()
    code = main(arguments)
    captured = capsys.readouterr()
    return code, captured.err


@st.composite
def invalid_commands(draw):
    algorithm, task = draw(st.sampled_from(list(ALGORITHMS))), draw(st.sampled_from(TASKS))
    kind = draw(st.sampled_from(["value"] * 6 + ["option", "algorithm", "task", "seeds"]))
    if kind == "value":
        name = draw(st.sampled_from(list(all_settings(algorithm))))
        value = draw(outside(name, *all_settings(algorithm)[name]))
        return ["train", algorithm, task, f"--{name.replace('_', '-')}={value}"]
    if kind == "option":
        return ["train", algorithm, task, "--x" + draw(st.text(string.ascii_lowercase, min_size=1)), "1"]
    if kind == "algorithm":
        return ["train", draw(words.filter(lambda w: w not in ALGORITHMS and not w.startswith("-"))), task]
    if kind == "task":
        return ["train", algorithm, draw(words.filter(lambda w: w not in TASKS and ":" not in w and w[0] != "-"))]
    return ["train", algorithm, task, "--seeds=" + draw(words.filter(lambda w: not set(w) & set(string.digits)))]


@pytest.mark.parametrize("part", range(5))
def test_invalid_commands_are_answered_by_one_line(part, capsys, tmp_path):
    """500 in all; nothing is written, nothing is compiled."""

    @settings(fuzzing, max_examples=100)
    @given(invalid_commands(), st.just(part))
    def check(arguments, part):
        out = tmp_path / "run"
        code, error = answer([*arguments, "--out", str(out)], capsys)
        assert code == 2, (arguments, error)
        assert error.startswith("dac: "), arguments
        assert error.count("\n") == 1, (arguments, error)
        assert not out.exists()

    # the same examples would be derived for every part if the test did not differ
    check.hypothesis.inner_test.__qualname__ = f"check_{part}"
    check()


@st.composite
def invalid_files(draw):
    algorithm, task = draw(st.sampled_from(list(ALGORITHMS))), draw(st.sampled_from(TASKS))
    kind = draw(st.sampled_from(["type", "type", "type", "unknown", "section", "syntax", "missing"]))
    config = resolve(algorithm, task)
    text = config.to_toml()
    if kind == "type":
        name, line = draw(st.sampled_from([(n, f"\n{n} = {to_toml(v)}\n") for n, v in config.hyper.items()]))
        known = all_settings(algorithm)[name][0]
        wrong = ['"x"', "[[1]]", "{a = 1}", "1979-05-27", "[]", "nan"]
        wrong = [w for w in wrong if not (get_origin(known) is Literal and w in get_args(known))]
        return text.replace(line, f"\n{name} = {draw(st.sampled_from(wrong))}\n")
    if kind == "unknown":
        return text + f"{draw(st.text(string.ascii_lowercase, min_size=12, max_size=14))} = 1\n"
    if kind == "section":
        return draw(
            st.sampled_from(["training = 3\n", "hyper = 'x'\n", "seeds = 'x'\n", "seeds = -1\n"])
        ) + text.replace("[training]", "[training]" if "training" not in text[:8] else "[other]").replace(
            "seeds = [0]\n", ""
        )
    if kind == "syntax":
        return text + draw(st.sampled_from(["= 3", "[", "a = ", "x = 'y", "\x00", "a = 1\na = 2"]))
    return text.replace(f'algorithm = "{algorithm}"\n', "")


@settings(fuzzing, max_examples=75)
@given(invalid_files())
@example("")
@example("\xff\xfe")
def test_invalid_files_are_answered_by_one_line(text):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.toml"
        path.write_text(text, encoding="utf-8")
        with pytest.MonkeyPatch.context() as patch:
            lines = []
            patch.setattr("builtins.print", lambda *a, **k: lines.append(" ".join(map(str, a))))
            code = main(["train", "--config", str(path), "--out", str(Path(folder) / "run")])
        assert code == 2, text
        assert len(lines) == 1, lines
        assert "\n" not in lines[0]
        assert not (Path(folder) / "run").exists()


@st.composite
def valid_requests(draw):
    algorithm, task = draw(st.sampled_from(list(ALGORITHMS))), draw(st.sampled_from(["maze", "target", "SparseHopper"]))
    chosen = {"steps": 20, "eval_every": draw(st.sampled_from([5, 10, 20])), "update_after": draw(st.integers(1, 15))}
    fields = settings_of(algorithm, ALGORITHMS[algorithm].bonus)
    chosen |= {name: (8, 8) for name in fields if name.endswith("hidden")}
    chosen |= {name: 4 for name in ("batch_size", "minibatches") if name in fields}
    chosen |= {"rollout": 8} if "rollout" in fields else {}
    chosen["envs"] = draw(st.sampled_from([envs for envs in (1, 2, 4) if chosen["eval_every"] % envs == 0]))
    for name, (kind, field) in fields.items():
        if kind is float and draw(st.booleans()):
            low, high = field.metadata["low"], field.metadata["high"]
            low, high = max(low, -5.0), min(high, 5.0)
            chosen[name] = draw(st.floats(low, high, allow_nan=False))
        if get_origin(kind) is Literal:
            chosen[name] = draw(st.sampled_from(get_args(kind)))
        if kind is bool:
            chosen[name] = draw(st.booleans())
    return algorithm, task, chosen


def run_valid(request):
    import dac
    from dac.core.types import UsageError

    algorithm, task, chosen = request
    with tempfile.TemporaryDirectory() as folder:
        try:
            run = dac.train(algorithm, task, seeds=[0, 1], out=Path(folder) / "run", **chosen)
        except UsageError as error:  # hyperparameters far from sense may end in NaN, which is said
            if "every member is frozen" not in str(error):
                raise
            return
        assert run.metrics["step"].shape[1] == 2
        assert all(member["steps"] == 20 for member in run.summary["members"])


@settings(fuzzing, max_examples=2)
@given(valid_requests())
def test_valid_requests_run(request):
    run_valid(request)


@pytest.mark.slow
@settings(fuzzing, max_examples=200)
@given(valid_requests())
def test_200_valid_requests_run(request):
    run_valid(request)
