"""A study file is read in full, or refused in one line that says where, before anything starts."""

import contextlib
import tomllib

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from dac.cluster.positions import find_lines
from dac.cluster.study import read_study
from dac.core.types import UsageError

GOOD = """\
# a study
tasks = ["maze", "target"]
algorithms = [
  "dac",
  "sac",   # two of them
]
seeds = "0:10"
members = 40

[settings]
steps = 3_000
hidden = [[8, 8], [16, 16]]
beta = [0.1, 0.3]

[settings.dac]
alpha = [0.2, 0.5, 0.8]

[[part]]
tasks = ["maze"]

[[part]]
tasks = ["target"]
algorithms = ["td3"]
seeds = [3, 5]
settings.beta = 1.0  # TD3 has none
"""


def read(tmp_path, text):
    path = tmp_path / "study.toml"
    path.write_text(text)
    return read_study(path)


def refusal(tmp_path, text):
    with pytest.raises(UsageError) as caught:
        read(tmp_path, text)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"{tmp_path / 'study.toml'}, line "), message
    line, _, rest = message.removeprefix(f"{tmp_path / 'study.toml'}, line ").partition(": ")
    return int(line), rest


def test_everything_that_is_asked_for(tmp_path):
    text = GOOD.replace("settings.beta = 1.0  # TD3 has none", "settings.hidden = [8]").replace("beta = [0.1, 0.3]", "")
    study = read(tmp_path, text.replace("steps", 'seeds = "x"\nsteps').replace('seeds = "x"\n', ""))
    cells = [(c.task, c.method.name, c.config.hyper["hidden"], c.config.seeds) for c in study.cells]
    ten = tuple(range(10))
    assert cells[:2] == [
        ("maze", "dac hidden 8x8 alpha 0.2", (8, 8), ten),
        ("maze", "dac hidden 8x8 alpha 0.5", (8, 8), ten),
    ]
    assert cells[5:] == [
        ("maze", "dac hidden 16x16 alpha 0.8", (16, 16), ten),
        ("maze", "sac hidden 8x8", (8, 8), ten),
        ("maze", "sac hidden 16x16", (16, 16), ten),
        ("target", "td3", (8,), (3, 5)),
    ]
    assert study.at_most == 40
    assert {cell.config.training.steps for cell in study.cells} == {3000}
    assert study.cells[0].config.hyper["alpha"] == 0.2


def test_adapted_alphas_stand_beside_numbers(tmp_path):
    study = read(tmp_path, 'tasks = ["maze"]\nalgorithms = ["dac"]\nsettings.alpha = [0.5, "adapt"]\n')
    assert [cell.config.hyper["adapt"] for cell in study.cells] == [False, True]
    assert [cell.method.name for cell in study.cells] == ["dac alpha 0.5", "dac alpha adapt"]


SHORT = 'tasks = ["maze"]\nalgorithms = ["dac"]\n[settings]\n'


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        # unknown keys, each with the nearest name
        ('task = ["maze"]\n', 1, "unknown key 'task'; did you mean tasks? (accepted: tasks, algorithms, seeds, settin"),
        ("alpha = 0.5\n", 1, "unknown key 'alpha'; settings stand in the table [settings] (accepted: tasks,"),
        (
            GOOD.replace('algorithms = ["td3"]', 'algoritms = ["td3"]'),
            23,
            "unknown key 'algoritms'; did you mean algor",
        ),
        (f"{SHORT}steps = 10\nalhpa = 0.5\n", 5, "unknown setting 'alhpa' for dac; did you mean alpha? (accepted: st"),
        (f"{SHORT}dac.alhpa = 0.5\n", 4, "unknown setting 'alhpa' for dac; did you mean alpha?"),
        (f"{SHORT}clip_ratio = 0.2\n", 4, "unknown setting 'clip_ratio' for dac"),
        (
            f"{SHORT}rollout = 64\n",
            4,
            "unknown setting 'rollout' for dac: it is a setting of ppo, acktr (give it in [se",
        ),
        (f"{SHORT}dca = {{alpha = 0.5}}\n", 4, "unknown algorithm 'dca'; did you mean dac?"),
        (f"{SHORT}\n[settings.sac]\nbeta = 1\n", 5, "sac is not among the algorithms of this study (accepted: dac)"),
        (f"{SHORT}combine = 'zip'\n", 4, "combine is not for a study"),
        # tasks, algorithms, seeds
        (GOOD.replace('"target"]\nalgo', '"trget"]\nalgo', 1), 2, "unknown task 'trget'"),
        (GOOD.replace('"sac",', '"sacc",'), 5, "unknown algorithm 'sacc'; did you mean sac? (accepted: dac, sac"),
        (GOOD.replace('"sac",', '"dac",'), 5, "dac is named twice in algorithms"),
        ('algorithms = ["dac"]\ntasks = "maze"\n', 2, "tasks must be a list of names, such as [\"maze\"], not 'maze'"),
        ('algorithms = ["dac"]\ntasks = []\n', 2, "tasks is an empty list"),
        ('algorithms = ["dac"]\n', 1, 'tasks are missing; give a list of names, such as tasks = ["maze"]'),
        (GOOD.replace("[3, 5]", "[3, 3]"), 24, "bad seeds [3, 3]"),
        (GOOD.replace('"0:10"', "true"), 7, "bad seeds True (accepted: 7,"),
        (GOOD.replace("members = 40", "members = 0"), 8, "members must be a whole number from 1"),
        ("part = []\n" + SHORT, 1, "part must be tables, each begun by [[part]]"),
        (f"settings = 3\n{SHORT.replace('[settings]', '')}", 1, "settings must be a table"),
        # impossible grids
        (f"{SHORT}alpha = []\n", 4, "alpha is an empty list; give at least one value"),
        (f"{SHORT}alpha = [\n  0.5,\n\n  2.0,\n]\n", 7, "alpha must be a number from 0 to 1 or 'adapt', not 2.0"),
        (f"{SHORT}alpha = [0.5, 0.5]\n", 4, "alpha holds the same value twice: 0.5"),
        (f'{SHORT}alpha = ["much"]\n', 4, "alpha must be a number from 0 to 1 or 'adapt', not 'much'"),
        (f"{SHORT}hidden = [[8, 8], [0]]\n", 4, "hidden must be a list of layer sizes such as 256,256, not [0]"),
        (f"{SHORT}steps = [100, 200]\n", 4, "steps tells no members apart, so it takes one value and no list"),
        (f"{SHORT}batch_size = [64, 'big']\n", 4, "batch_size must be a whole number, not 'big'"),
        (f"{SHORT}steps = 10\nupdate_ratio = -1\n", 5, "update_ratio must be a number"),
        (f"{SHORT}steps = 2020-01-01\n", 4, "steps must be a whole number, not datetime.date(2020, 1, 1)"),
        (
            f"{SHORT}alpha = {[k / 1000 for k in range(999)]}\nbeta = {[k + 1.0 for k in range(999)]}\n",
            4,
            "the study has",
        ),
        (
            f"{SHORT}temperature = 'fixed'\nentropy_target = 0.5\n",
            5,
            "dac on maze: entropy_target is for a beta that adapts",
        ),
        (GOOD, 25, "unknown setting 'beta' for td3"),
        # several things of one run that do not go together
        (
            'tasks = ["maze"]\nalgorithms = ["ppo"]\n[settings]\nsteps = 100\nrollout = 64\nminibatches = 5',
            5,
            "ppo on ma",
        ),
        (
            'tasks = ["maze"]\nalgorithms = ["ppo"]\nsettings.bonus = "rnd"',
            3,
            "ppo learns on-policy and takes no bonus",
        ),
        # no TOML
        ("tasks = [\n", 1, "not valid TOML: Invalid"),
        ("a = 1\nb = = 2\n", 2, "not valid TOML: Invalid value"),
        ("a = 1\na = 2\n", 2, "not valid TOML: Cannot overwrite a value"),
    ],
)
def test_what_is_wrong_is_one_line_that_says_where(tmp_path, text, line, message):
    found, said = refusal(tmp_path, text)
    assert said.startswith(message), said
    assert found == line


def test_the_lines_of_every_key():
    """Strings that look like keys, comments, dotted keys, tables in lists and lists over several lines."""
    text = "\n".join(
        [
            "a.b = 1  # c = 2",
            's = """',
            "[not.a.table]",
            'x = 3"""',
            "",
            "list = [ # one",
            "  1,",
            "  2, 3,",
            "]",
            "[[p]]",
            "k = '''",
            "'''",
            "[p.q]",
            "'[z]' = {u = 1, v.w = 2}",
            "[[p]]",
            "[[p.r]]",
            "y = 1",
        ]
    )
    for ending in ("\n", "\r\n"):
        assert find_lines(text.replace("\n", ending)) == {
            ("a",): 1, ("a", "b"): 1, ("s",): 2, ("list",): 6, ("list", 0): 7, ("list", 1): 8, ("list", 2): 8,
            ("p", 0): 10, ("p", 0, "k"): 11, ("p", 0, "q"): 13, ("p", 0, "q", "[z]"): 14, ("p", 0, "q", "[z]", "u"): 14,
            ("p", 0, "q", "[z]", "v"): 14, ("p", 0, "q", "[z]", "v", "w"): 14, ("p", 1): 15, ("p", 1, "r", 0): 16,
            ("p", 1, "r", 0, "y"): 17,
        }  # fmt: skip


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.integers(0, len(GOOD)), st.sampled_from(["", "x", "[", "]", "=", '"', "\n", "9", "'''", "é", "\x00"]))
def test_a_damaged_file_never_ends_in_a_traceback(tmp_path_factory, place, put):
    """A character lost or put somewhere: it is a study, or an error of one line with a line of the file."""
    folder = tmp_path_factory.mktemp("study", numbered=True)
    text = GOOD[:place] + put + GOOD[place + 1 :]
    (folder / "study.toml").write_text(text)
    with contextlib.suppress(UsageError):
        read_study(folder / "study.toml")
        return
    found, _ = refusal(folder, text)
    assert 1 <= found <= len(text.split("\n"))


def test_files_that_are_none(tmp_path):
    with pytest.raises(UsageError, match="no such file"):
        read_study(tmp_path / "none.toml")
    with pytest.raises(UsageError, match="is a folder; a study file is needed"):
        read_study(tmp_path)
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="not a text file in UTF-8"):
        read_study(tmp_path / "bytes.toml")
    assert tomllib.loads(GOOD)["part"]
