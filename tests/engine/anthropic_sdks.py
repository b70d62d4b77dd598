"""Anthropic's SDKs for Python and for JavaScript, asked as those of OpenAI are in tests/e2e/test_stored.py."""
import os

from engines import PYTHON
from test_stored import NodeSdk


class NodeAnthropic(NodeSdk):
    sdk, root = 'anthropic', ''


class PythonAnthropic(NodeAnthropic):
    command, folder = [PYTHON, 'anthropic_sdk.py'], os.path.dirname(os.path.abspath(__file__))
