"""The command line. Only here, and in progress bars, is text shown to a person."""

from dac.cli.main import main as main
