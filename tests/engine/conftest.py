"""One pair of engines for all tests here, and the tables that tests leave for the end of the run.

Ended from outside they end as by Ctrl-C, so that no engine is left behind.
"""
import os
import signal
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), 'e2e'))
signal.signal(signal.SIGTERM, signal.default_int_handler)
TABLES = pytest.StashKey()


@pytest.fixture(scope='session')
def pair():
    from engines import AFFINITY, INTERVAL_MS, EnginePair
    with EnginePair(affinity=AFFINITY, serving={'load_window_ms': 15000}, clusters={'signals': {'interval_ms': INTERVAL_MS}}) as grid:
        yield grid


@pytest.fixture
def table(pytestconfig):
    """Keeps a table's lines for the end of the run: title, heading, lines. Those with one title come together."""
    tables = pytestconfig.stash.setdefault(TABLES, {})
    return lambda title, heading, *lines: tables.setdefault(title, [heading]).extend(lines)


def pytest_terminal_summary(terminalreporter, config):
    for title, lines in config.stash.get(TABLES, {}).items():
        terminalreporter.section(title)
        for line in lines:
            terminalreporter.write_line(line)
