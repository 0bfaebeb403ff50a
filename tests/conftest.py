"""For all tests: no state of the user's is touched, and slow machines fail no property test."""

import os
import shutil
import tempfile

from hypothesis import settings

settings.register_profile("usv-tui", deadline=None)
settings.load_profile("usv-tui")


def pytest_configure(config):
    """Sessions, logs and leases of the tests go to a folder of their own."""
    config.usv_state = tempfile.mkdtemp(prefix="usv-tui-tests-")
    os.environ["XDG_STATE_HOME"] = config.usv_state


def pytest_unconfigure(config):
    """The folder goes with the tests."""
    shutil.rmtree(config.usv_state, ignore_errors=True)
