"""Every task by name: how to make it, its defaults, and where each default comes from."""

from dac.tasks.presets import paper as paper
from dac.tasks.presets import preset as preset
from dac.tasks.registry import FORMS as FORMS
from dac.tasks.registry import TASKS as TASKS
from dac.tasks.registry import Task as Task
from dac.tasks.registry import find_factory as find_factory
from dac.tasks.registry import find_task as find_task
from dac.tasks.registry import listed as listed
from dac.tasks.registry import task_of as task_of
