"""The official SDK for Python of Anthropic, asked from a test: a JSON line in, a JSON line out, as tests/e2e/node/sdk.mjs.

It runs in the engine's own environment, whose pins bring the SDK.
"""
import json
import sys

import anthropic


def answer(url, call, args):
    *path, verb = call
    target = anthropic.Anthropic(base_url=url, api_key='none', max_retries=0, timeout=120)
    for name in path:
        target = getattr(target, name)
    try:
        raw = getattr(target.with_raw_response, verb)(**args[0])
        value = raw.parse()
        whole = value.to_dict(warnings=False) if hasattr(value, 'to_dict') else [one.to_dict(warnings=False) for one in value]
        return {'site': raw.headers.get('x-grid-site'), 'value': whole}
    except anthropic.APIStatusError as e:
        return {'status': e.status_code, 'code': getattr(e, 'type', None), 'message': e.message}


if __name__ == '__main__':
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(answer(asked['url'], asked['call'], asked['args'])), flush=True)
