"""What Python users call: models and populations, and train, resume, load and Run for run directories."""

from dac.api.environments import Environment as Environment
from dac.api.model import Episodes as Episodes
from dac.api.model import Model as Model
from dac.api.model import evaluate as evaluate
from dac.api.models import ACKTR as ACKTR
from dac.api.models import DAC as DAC
from dac.api.models import DEMME as DEMME
from dac.api.models import MME as MME
from dac.api.models import PPO as PPO
from dac.api.models import RND as RND
from dac.api.models import SAC as SAC
from dac.api.models import SQL as SQL
from dac.api.models import TD3 as TD3
from dac.api.models import MaxEntState as MaxEntState
from dac.api.models import SACDiv as SACDiv
from dac.api.population import Population as Population
from dac.api.run import Run as Run
from dac.api.run import load as load
from dac.api.run import pool as pool
from dac.api.run import resume as resume
from dac.api.run import train as train
