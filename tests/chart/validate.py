#!/usr/bin/env python3
"""Every object of rendered manifests against the strict schemas of several Kubernetes versions, and custom ones against schemas/.

    .venv-ship/bin/python tests/chart/validate.py FILE...      prints what is wrong; status 1 then
"""
import json
import os
import sys

import jsonschema
import kubernetes_validate
import yaml

VERSIONS = ('1.27', '1.31', '1.34')
SCHEMAS = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'schemas')


def problems(thing):
    group, _, version = thing['apiVersion'].rpartition('/')
    if '.' in group and not group.endswith('.k8s.io'):
        path = os.path.join(SCHEMAS, '%s-%s-%s.json' % (thing['kind'].lower(), group.split('.')[0], version))
        with open(path, encoding='utf-8') as f:
            for error in jsonschema.Draft7Validator(json.load(f)).iter_errors(thing):
                yield '%s: %s' % (error.json_path, error.message)
        return
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(thing, version, strict=True)
        except Exception as e:      # its own errors have no common base
            yield 'Kubernetes %s: %s' % (version, getattr(e, 'message', e))


def main():
    found = seen = 0
    for path in sys.argv[1:]:
        with open(path, encoding='utf-8') as f:
            for thing in filter(None, yaml.safe_load_all(f)):
                seen += 1
                for problem in problems(thing):
                    found += 1
                    print('%s: %s %s: %s' % (path, thing['kind'], thing['metadata']['name'], problem))
    print('%d objects, %d problems' % (seen, found))
    return 1 if found or not seen else 0


if __name__ == '__main__':
    sys.exit(main())
