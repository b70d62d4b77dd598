"""Lets these tests use the grid of tests/e2e. Ended from outside they end as by Ctrl-C, so that no engine is left behind."""
import os
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), 'e2e'))
signal.signal(signal.SIGTERM, signal.default_int_handler)
