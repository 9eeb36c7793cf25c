"""Comparisons with other libraries themselves, in an environment of their own: run with `make test-peers`.

They need other versions than the package is tested with (an older MuJoCo, torch), so the ordinary tests skip every file
here. In that environment a library that is missing is an error, not a skip.
"""

import os

import pytest

if os.environ.get("DAC_PEERS") != "1":
    pytest.skip("needs other libraries in an environment of their own: `make test-peers`", allow_module_level=True)
