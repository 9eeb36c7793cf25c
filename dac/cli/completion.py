"""`dac completion`: scripts with which a shell completes commands, options, algorithms, tasks and run directories.

The script of a shell asks `dac completion --for WORDS` for what may follow. What the parsers know is asked of them once
per version, which takes as long as JAX takes to load, and kept in the user's cache folder; every other answer is there
before a person notices. Commands and tasks need no JAX the first time either.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import typing
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from dac._version import __version__

BASH = """\
# completion of dac for bash: put  source <(dac completion bash)  into ~/.bashrc
_dac() {
    local -a answer words=()
    local word prefix=
    for word in "${COMP_WORDS[@]:1:COMP_CWORD}"; do  # bash splits at colons, which names of tasks have
        if (( ${#words[@]} )) && [[ $word == :* || ${words[-1]} == *: ]]; then words[-1]+=$word
        else words+=("$word"); fi
    done
    if [[ $COMP_WORDBREAKS == *:* && $word != "${words[-1]}" ]]; then prefix=${words[-1]%"${words[-1]##*:}"}; fi
    mapfile -t answer < <(dac completion --for "${words[@]}" 2>/dev/null)
    COMPREPLY=("${answer[@]:1}")
    COMPREPLY=("${COMPREPLY[@]#"$prefix"}")
    [[ ${answer[0]} == paths ]] && compopt -o filenames
    [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == */ ]] && compopt -o nospace
    return 0
}
complete -o bashdefault -o default -F _dac dac
"""
ZSH = """\
# completion of dac for zsh: put  source <(dac completion zsh)  into ~/.zshrc, after compinit
_dac() {
    local -a answer
    answer=("${(@f)$(dac completion --for "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
    local kind=$answer[1]
    shift answer
    if (( ! $#answer )); then _files
    elif [[ $kind == paths ]]; then compadd -f -S '' -- "${(@)answer}"
    else compadd -- "${(@)answer}"
    fi
}
compdef _dac dac
"""
FISH = """\
# completion of dac for fish: put  dac completion fish | source  into ~/.config/fish/config.fish
function __dac_complete
    set -l word (commandline -ct)
    set -l answer (dac completion --for (commandline -opc)[2..-1] (string unescape -- "$word") 2>/dev/null)
    if set -q answer[2]
        printf '%s\\n' $answer[2..-1]
    else
        __fish_complete_path $word
    end
end
complete -c dac -f -a '(__dac_complete)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}

Table = dict[str, Any]
"""What the parsers know: algorithms, experiments, and of every command its options and arguments."""


def add_arguments(command: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    del arguments
    command.description = "Print a script for a shell; its first line says where to put it."
    command.add_argument("shell", nargs="?", choices=list(SCRIPTS), help="the shell that is to complete")
    command.add_argument("--for", dest="words", nargs=argparse.REMAINDER, help="say what may follow these words")


def run(options: argparse.Namespace) -> int:
    if options.words is not None:
        kind, candidates = answer(options.words)
        print("\n".join([kind, *candidates]))
        return 0
    if options.shell is None:
        from dac.core.errors import UsageError

        raise UsageError(f"a shell is needed, for example: dac completion bash (accepted: {', '.join(SCRIPTS)})")
    print(SCRIPTS[options.shell], end="")
    return 0


def answer(words: Sequence[str]) -> tuple[str, list[str]]:
    """Return what may stand in place of the last word, and whether it is `words` or `paths`.

    Without a candidate the shell offers its files.
    """
    *before, last = words or [""]
    from dac.cli.main import COMMANDS

    if not before:
        return "words", _fitting([*COMMANDS, "--help", "--version"], last)
    if before[0] not in COMMANDS:
        return "words", []
    table = _read_cache()
    if table is None and before[0] == "train" and len(before) == 2 and "-" not in before[1][:1] + last[:1]:
        return "words", _fitting(_tasks(), last)
    table = table or _make_cache()
    command = _command(table, before)
    if before[-1] in command["options"] and command["options"][before[-1]] is not None:
        return "words", _fitting(command["options"][before[-1]], last)
    if last.startswith("-"):
        return "words", _fitting(command["options"], last)
    given = _positionals(before[1:], command["options"])
    wanted = command["arguments"][min(len(given), len(command["arguments"]) - 1)] if command["arguments"] else "FILE"
    if wanted == "RUN":
        return "paths", find_runs(last)
    if wanted in ("FILE", "FOLDER"):
        return "words", []
    return "words", _fitting(table["names"].get(wanted, wanted.split()), last)


def _command(table: Table, before: Sequence[str]) -> Table:
    """Return what the command takes: of `dac train`, the options of the algorithm that was chosen."""
    if before[0] != "train":
        return table["commands"][before[0]]
    chosen = _positionals(before[1:], table["train"][""]["options"])[:1]
    return table["train"].get(*chosen, table["train"][""]) if chosen else table["train"][""]


def _positionals(words: Sequence[str], options: Table) -> list[str]:
    """The words that are neither options nor their values."""
    found, value = [], False
    for word in words:
        if not value and not word.startswith("-"):
            found.append(word)
        value = options.get(word) is not None  # `--name=value` is a word
    return found


def _fitting(candidates: Iterable[str], prefix: str) -> list[str]:
    return [candidate for candidate in candidates if candidate.startswith(prefix) and candidate not in ("-h", "-o")]


def _tasks() -> list[str]:
    from dac.tasks import listed

    return [*listed(), "gym:", "python:", "jax:"]


def find_runs(prefix: str) -> list[str]:
    """Return run directories and folders that may hold some, below the folder that was written so far."""
    folder, _, start = prefix.rpartition("/")
    base = Path(f"{folder}/" if "/" in prefix else ".").expanduser()
    if not prefix and (base / "runs").is_dir():
        base, folder = base / "runs", "runs"
    lead = f"{folder}/" if folder or prefix.startswith("/") else ""
    found = []
    with contextlib.suppress(OSError):
        for path in sorted(base.iterdir()):
            if path.name.startswith(start) and path.is_dir() and (start or not path.name.startswith(".")):
                found.append(f"{lead}{path.name}{'' if (path / 'config.toml').is_file() else '/'}")
    return found


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME", os.path.join(os.path.expanduser("~"), ".cache"))
    return Path(home) / "dac" / "completion.json"


def _read_cache() -> Table | None:
    """Return what the parsers knew the last time, unless this is another version."""
    try:
        found = json.loads(_cache().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and found.get("version") == _version() else None


def _make_cache() -> Table:
    table = {"version": _version()} | make_table()
    with contextlib.suppress(OSError):  # a cache that cannot be written costs time only
        path = _cache()
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.{os.getpid()}")
        part.write_text(json.dumps(table), encoding="utf-8")
        part.replace(path)
    return table


def _version() -> str:
    """Return the version, of a checkout with the time of its latest change."""
    files = Path(__file__).parents[1].glob("*/**/*.py")
    return f"{__version__} {max(file.stat().st_mtime_ns for file in files)}"


def make_table() -> Table:
    """Ask the parsers, and the registries, for everything that can be written."""
    from dac.algorithms import ALGORITHMS
    from dac.cli.main import COMMANDS
    from dac.experiments.paper import EXPERIMENTS

    commands = {name: _describe(name, [name]) for name in COMMANDS}
    train = {name: _describe("train", ["train", name]) for name in ALGORITHMS}
    return {
        "names": {"ALGORITHM": list(ALGORITHMS), "TASK": _tasks(), "NAME": [*EXPERIMENTS, "all"]},
        "commands": commands,
        "train": train | {"": commands["train"]},
    }


def _describe(command: str, words: Sequence[str]) -> Table:
    """Return a command's options, each with its values where they are known (None: it takes none), and arguments."""
    from dac.config.schema import Training, fields_of, settings_of

    parser = argparse.ArgumentParser(allow_abbrev=False)
    importlib.import_module(f"dac.cli.{command}").add_arguments(parser, words)
    fields = fields_of(Training) | (settings_of(words[1]) if len(words) > 1 else {})
    options: Table = {}
    arguments = []
    for action in parser._actions:
        values = list(action.choices or _values(*fields.get(action.dest.removeprefix("set_"), (None, None))))
        for flag in action.option_strings:
            options[flag] = None if action.nargs == 0 else values
        if not action.option_strings:
            arguments.append(" ".join(values) or str(action.metavar))
    return {"options": options, "arguments": arguments}


def _values(kind: Any, field: Any) -> list[str]:
    """Return the values of a setting that has a few, by name."""
    if field is None:
        return []
    if kind is bool:
        return ["true", "false"]
    literal = typing.get_args(kind) if typing.get_origin(kind) is typing.Literal else ()
    choices = field.metadata.get("choices") or literal
    return [str(choice) for choice in (choices() if callable(choices) else choices)]
