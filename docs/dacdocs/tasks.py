"""A table of every task: its sizes and its defaults."""

from __future__ import annotations

from dac.tasks import FORMS, listed
from dacdocs.settings import table, values


def tasks() -> str:
    """Return every task with its sizes, its defaults and their source; then the forms of names for other tasks."""
    rows = []
    for name, task in listed().items():
        assert task.sizes is not None
        sizes, defaults = f"{task.sizes.obs_size} / {task.sizes.action_size}", {**task.training, **task.hyper}
        rows.append([f"`{name}`", task.summary, sizes, task.extra, values(defaults), task.source])
    forms = [[f"`{form}`", text] for form, text in FORMS.items()]
    heads = ["task", "what it is", "observation / action", "extra", "defaults", "source"]
    return table(heads, rows) + "\n\n" + table(["name", "stands for"], forms)
