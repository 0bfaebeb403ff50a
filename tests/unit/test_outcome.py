"""What a run leaves at its end, whatever goes wrong there."""

import argparse

import pytest

from tests.fakes import session as fake
from tests.fakes.live import open_session
from usv_tui.cli.outcome import Outcome
from usv_tui.errors import ExitCode


@pytest.mark.parametrize("error", [MemoryError(), ValueError("no")])
@pytest.mark.parametrize("target", ["-", "out.json"])
def test_data_that_cannot_be_had_does_not_cost_the_table(
    tmp_path, monkeypatch, capsys, error, target
):
    """The table stands on stdout, one line on stderr says what is missing, the code tells it."""
    monkeypatch.chdir(tmp_path)

    def fail(*_):
        raise error

    monkeypatch.setattr("usv_tui.session.export.write", fail)
    monkeypatch.setattr("usv_tui.session.export.write_file", fail)
    session, source, _ = open_session()
    source.queue += fake.two_rows(10)
    session.pump()
    args = argparse.Namespace(
        json=target, csv="data.csv", json_lines=None, markdown=False, save=None, versions=None
    )

    code = Outcome(args, session, None, None).tell(0, is_told=False)

    told = capsys.readouterr()
    assert code == ExitCode.WORKER_LOST
    assert "no json: " in told.err
    assert "no csv: " in told.err
    assert ("median" in told.out) == (target != "-")
