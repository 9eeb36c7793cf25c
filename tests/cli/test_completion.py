"""What may follow the words on the command line, said in Python and asked by a real shell."""

import shutil
import subprocess
import sys
import time

import pytest

from dac.cli import main
from dac.cli.completion import SCRIPTS, answer
from dac.cli.main import COMMANDS
from dac.tasks import TASKS


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """A cache folder of its own, filled by whoever asks first."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with two runs in `runs`, and another one elsewhere."""
    for name in ("runs/maze-dac-001", "runs/maze-sac-001", "else where/my run"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.toml").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("", [*COMMANDS, "--help", "--version"]),
        ("tr", ["train"]),
        ("nothing ", []),
        ("train dac Sparse", [name for name in TASKS if name.startswith("Sparse")]),
        ("train dac py", ["python:"]),
        ("train dac gym:FetchS", ["gym:FetchSlide-v4"]),
        ("train dac dmc:cartpole-s", ["dmc:cartpole-swingup", "dmc:cartpole-swingup_sparse"]),
        ("train sa", ["sac", "sac-div"]),
        ("train --seeds 3 sa", ["sac", "sac-div"]),
        ("train --seeds=3 dac ma", ["maze"]),
        ("train dac maze --alpha-g", ["--alpha-gradient"]),
        ("train sac maze --alpha", []),
        ("train --out sac dac maze --clip", ["--clip"]),
        ("train dac maze --bonus ", ["none", "rnd", "maxent-state", "novelty", "count"]),
        ("train dac maze --adapt ", ["true", "false"]),
        ("train dac maze --replay d", ["device"]),
        ("train dac maze --out ", []),  # the shell's files
        ("list ", ["tasks", "algorithms"]),
        ("list tasks --q", []),
        ("evaluate --epi", ["--episodes"]),
        ("reproduce fig1", ["fig1-maze"]),
        ("tune ma", ["maze"]),
        ("tune maze --algorithm sa", ["sac", "sac-div"]),
        ("tune maze --seeds", ["--seeds-per-trial"]),
        ("tune maze --sampler ", ["tpe", "random"]),
        ("completion ", list(SCRIPTS)),
    ],
)
def test_what_may_follow(line, offered):
    assert answer(line.split(" ")) == ("words", offered)


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("resume ", ["runs/maze-dac-001", "runs/maze-sac-001"]),
        ("evaluate --episodes 3 runs/maze-s", ["runs/maze-sac-001"]),
        ("video e", ["else where/"]),
        ("report nowhere/", []),
    ],
)
def test_run_directories_may_follow(here, line, offered):
    assert answer(line.split(" ")) == ("paths", offered)
    assert answer(["resume", f"{here}/runs/maze-d"]) == ("paths", [f"{here}/runs/maze-dac-001"])


def test_answers_are_quick_and_of_this_version(cache, monkeypatch):
    answer(["train", "dac", "maze", "--"])
    start = time.perf_counter()
    answer(["train", "dac", "maze", "--"])
    assert time.perf_counter() - start < 0.2
    (path,) = cache.glob("dac/*")
    path.write_text('{"version": "0.1"}')
    assert answer(["train", "sa"])[1] == ["sac", "sac-div"]
    path.write_text("not json")
    assert answer(["train", "sa"])[1] == ["sac", "sac-div"]
    shutil.rmtree(cache / "dac")
    (cache / "dac").touch()  # no folder can be made
    assert answer(["train", "sa"])[1] == ["sac", "sac-div"]
    (cache / "dac").unlink()


def test_the_command_prints_scripts(capsys):
    for name, script in SCRIPTS.items():
        assert main(["completion", name]) == 0
        assert capsys.readouterr().out == script
    assert main(["completion"]) == 2
    assert "a shell is needed, for example: dac completion bash (accepted: bash, zsh, fish)" in capsys.readouterr().err


BASH = """
dac() { "$PYTHON" -m dac "$@"; }
source <(dac completion bash)
compopt() { echo "compopt $*"; }
ask() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _dac; printf '<%s>' "${COMPREPLY[@]}"; echo; }
ask dac evalu
ask dac resume runs/maze-s
ask dac resume "else"
ask dac train sac maze --nosuch
ask dac train sac dmc : fish-
ask dac train sac py
complete -p dac
"""


def needs(shell):
    return pytest.mark.skipif(shutil.which(shell) is None, reason=f"no {shell} here")


def tell(shell, script, monkeypatch, *options):
    """What a shell says that is given a script; the scripts call dac as `dac`."""
    answer(["train", "sa"])  # fills the cache
    monkeypatch.setenv("PYTHON", sys.executable)
    command = [shell, *options, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout.splitlines()


@needs("bash")
def test_bash_completes(here, monkeypatch):
    assert tell("bash", BASH, monkeypatch) == [
        "<evaluate>",
        "compopt -o filenames",
        "<runs/maze-sac-001>",
        "compopt -o filenames",
        "compopt -o nospace",
        "<else where/>",
        "<>",
        "<fish-upright><fish-swim>",  # what comes after the colon, at which bash splits
        "<python:>",
        "complete -o bashdefault -o default -F _dac dac",
    ]


ZSH = """
# a zsh with a terminal of its own, in which TAB is pressed and Ctrl-X then prints the line
zmodload zsh/zpty
zpty inner zsh -f -i
hear() { local text; zpty -r -m inner text "*<<*>>*" && print -r -- "${${text##*<<}%%>>*}" }
zpty -w inner 'PS1= RPS1=; dac() { "$PYTHON" -m dac "$@" }'
zpty -w inner 'autoload -Uz compinit; compinit -D -u; source <(dac completion zsh)'
zpty -w inner 'show() { print -r -- "<""<$BUFFER>"">"; BUFFER=; zle send-break }; zle -N show; bindkey "^X" show'
zpty -w inner 'print "<""<ready>"">"'
hear
for line in 'dac evalu' 'dac resume runs/maze-s' 'dac resume else' 'dac resume else\\ where/m' 'dac train dac ma' \
    'dac train dac maze --out not'; do
    zpty -w -n inner "$line"$'\\t\\x18'
    hear
done
zpty -d inner
"""


@needs("zsh")
def test_zsh_completes(here, monkeypatch):
    (here / "notes.txt").touch()
    assert tell("zsh", ZSH, monkeypatch, "-f") == [
        "ready",
        "dac evaluate ",
        "dac resume runs/maze-sac-001",
        "dac resume else\\ where/",
        "dac resume else\\ where/my\\ run",
        "dac train dac maze ",
        "dac train dac maze --out notes.txt ",
    ]


FISH = """
function dac; $PYTHON -m dac $argv; end
dac completion fish | source
for line in 'dac evalu' 'dac resume ' 'dac resume else' 'dac resume else\\ where/m' 'dac train dac ma' \
    'dac train dac maze --out not'
    for found in (complete -C "$line"); echo "<$found>"; end
end
"""


@needs("fish")
def test_fish_completes(here, monkeypatch):
    (here / "notes.txt").touch()
    (here / "evaluations.txt").touch()  # not offered where a command stands
    monkeypatch.setenv("HOME", str(here))
    assert tell("fish", FISH, monkeypatch, "--no-config") == [
        "<evaluate>",
        "<runs/maze-dac-001>",
        "<runs/maze-sac-001>",
        "<else where/>",
        "<else where/my run>",
        "<maze>",
        "<notes.txt>",
    ]
