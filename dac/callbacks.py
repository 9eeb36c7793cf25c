"""What `watchers=[...]` takes, ready to use: stop a run, keep policies, evaluate elsewhere.

    dac.train("dac", "maze", watchers=[dac.callbacks.StopAfter(minutes=10), lambda evaluation: None])

A callback of one's own derives from `AbstractWatcher` and overrides what it needs, or is a function of an `Evaluation`.
"""

from dac.training.watchers import AbstractWatcher as AbstractWatcher
from dac.training.watchers import CallbackError as CallbackError
from dac.training.watchers import Evaluation as Evaluation
from dac.training.watchers import Message as Message
from dac.training.watchers import Position as Position
from dac.training.watchers import Start as Start
from dac.training.watchers.evaluate_on import EvaluateOn as EvaluateOn
from dac.training.watchers.save_best import SaveBest as SaveBest
from dac.training.watchers.save_policies import SavePolicies as SavePolicies
from dac.training.watchers.stop_after import StopAfter as StopAfter
from dac.training.watchers.stop_on_return import StopOnReturn as StopOnReturn
from dac.training.watchers.stop_without_improvement import StopWithoutImprovement as StopWithoutImprovement
