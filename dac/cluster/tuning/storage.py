"""Where Optuna keeps the trials: SQLite on one machine, PostgreSQL or a journal in a shared folder for several."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from dac.core.errors import missing_extra, needs_extra
from dac.core.types import UsageError
from dac.rundir.files import make_directory

if TYPE_CHECKING:
    from optuna import Study
    from optuna.storages import BaseStorage

DRIVERS = {"postgresql": "postgresql+psycopg"}
"""What SQLAlchemy is to use where a URL does not say it."""


def storage_text(given: str | None, directory: Path) -> str:
    """The storage in full: SQLite in the folder of the study unless another one is given; a path is a journal."""
    if given is None:
        return f"sqlite:///{directory / 'study.db'}"
    scheme, mark, rest = given.partition("://")
    return f"{DRIVERS.get(scheme, scheme)}://{rest}" if mark else given


def without_password(text: str) -> str:
    """The storage as it may be shown and written down."""
    scheme, mark, rest = text.partition("://")
    user, at, place = rest.rpartition("@")
    return f"{scheme}://{user.partition(':')[0]}@{place}" if mark and at else text


def open_storage(text: str) -> BaseStorage:
    """Open the storage, which is made where there is none yet."""
    with needs_extra("optuna", "dac tune"):
        import optuna
        from optuna.storages import RDBStorage
        from optuna.storages.journal import JournalFileBackend, JournalStorage
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    if "://" not in text:
        make_directory(Path(text).parent)
        try:
            return JournalStorage(JournalFileBackend(text))
        except (OSError, ValueError, KeyError) as error:
            raise UsageError(f"cannot open the journal {text}: {_line(error)}") from None
    if text.startswith("postgresql+psycopg:") and importlib.util.find_spec("psycopg") is None:
        raise missing_extra("postgresql", "a study in PostgreSQL")
    if text.startswith("sqlite:///"):
        make_directory(Path(text.removeprefix("sqlite:///")).parent)
    try:
        # a connection that the server closed in the meantime is made anew
        return RDBStorage(text, engine_kwargs={"pool_pre_ping": True})
    except Exception as error:  # of SQLAlchemy, of the driver, or of Optuna: each has its own
        raise UsageError(f"cannot open the storage {without_password(text)}: {_line(error)}") from None


def close_storage(storage: BaseStorage) -> None:
    """Let go of a database."""
    from optuna.storages import RDBStorage

    if isinstance(storage, RDBStorage):
        storage.remove_session()
        storage.engine.dispose()


def open_study(storage: BaseStorage, name: str) -> Study:
    """Open the study of this name, which is made where there is none yet."""
    import optuna

    study = optuna.create_study(storage=storage, study_name=name, direction="maximize", load_if_exists=True)
    if [direction.name for direction in study.directions] != ["MAXIMIZE"]:
        raise UsageError(f"the storage has a study {name!r} of another kind; give another name with `study=NAME`")
    return study


def dashboard_command(text: str) -> str:
    """The command that opens the study in a browser."""
    return f"optuna-dashboard {without_password(text)}"


def _line(error: BaseException) -> str:
    """The first sentence of an error, or of the one that it came from."""
    cause = getattr(error, "orig", None) or error.__cause__ or error
    return " ".join(str(cause).split())[:200]
