"""Playwright lies beside the other packages, in .venv-page (scripts/setup-page); the browser is the system's."""
import glob
import os
import shutil
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PICTURES = os.path.join(ROOT, 'build', 'page')
sys.path[:0] = [os.path.join(ROOT, 'tests', 'e2e')]
sys.path += glob.glob(os.path.join(ROOT, '.venv-page', 'lib', 'python3*', 'site-packages'))


@pytest.fixture(scope='session')
def browser():
    from playwright.sync_api import sync_playwright
    os.makedirs(PICTURES, exist_ok=True)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which('chromium'), args=['--no-sandbox'])
        yield chromium
        chromium.close()
