import subprocess
import sys

import pytest

THREAD = (
    "import threading, time\n"
    "threading.Thread(target=time.sleep, args=(600,), name='mine', daemon=False).start()\n"
)
PROCESS = (
    "import multiprocessing as mp, time\n"
    "mp.get_context('fork').Process(target=time.sleep, args=(20,), name='mine').start()\n"
)
ROWS = "BENCHMARKS = {'a': lambda: sum(range(100))}\n"


@pytest.mark.parametrize("source", [THREAD, PROCESS], ids=["thread", "process"])
@pytest.mark.parametrize(
    "command", [["list"], ["--headless", "--no-save", "--max-time", "0.2", "--warmup", "0"]]
)
def test_what_a_file_leaves_running_holds_nobody(tmp_path, source, command):
    """The command ends with its own exit code some seconds later, and says what it left."""
    path = tmp_path / "leaves.py"
    path.write_text(source + ROWS)

    # What is left behind keeps pipes open, and files wait for nobody.
    with (tmp_path / "out").open("w+") as out, (tmp_path / "err").open("w+") as err:
        done = subprocess.run(
            [sys.executable, "-m", "usv_tui", *command, str(path)],
            stdout=out,
            stderr=err,
            timeout=15,
            check=False,
        )

    assert done.returncode == 0
    assert "mine" in (tmp_path / "err").read_text().splitlines()[-1]
    assert "a" in (tmp_path / "out").read_text()
