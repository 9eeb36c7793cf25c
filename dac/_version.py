__version__ = "0.2.0"
"""The version of the package, by semantic versioning."""
