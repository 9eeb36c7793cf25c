"""What decides a run: the settings (`schema`), one run in full (`run`) and how it is completed (`resolution`)."""

from dac.config.resolution import elsewhere as elsewhere
from dac.config.resolution import resolve as resolve
from dac.config.resolution import with_steps as with_steps
from dac.config.run import RunConfig as RunConfig
from dac.config.schema import Training as Training
from dac.config.schema import describe as describe
from dac.config.text import parse_seeds as parse_seeds
from dac.config.text import parse_text as parse_text
from dac.config.text import read_toml as read_toml
