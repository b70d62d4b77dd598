"""What a page of the documents asks to be run. A marker is an HTML comment on the line before a fenced block:

    <!-- file: NAME -->              the block is written to NAME
    <!-- run -->                     the block is run by bash with -eu; it must end with 0
    <!-- run: fails -->              it must not
    <!-- run: until TEXT -->         it goes on in the background; the next block waits for a line with TEXT
    <!-- output -->                  each line must come, in this order, in the output of the block before; … stands for anything

All blocks of a page share a scratch folder with grid-gateway, curl and the Python of the tests on the PATH. Ports on 127.0.0.1 (and those in
`sim-site --listen`) stand for free ones, the same for a whole page.
"""
import os
import re
import signal
import socket
import subprocess
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BINARY = os.environ.get('GRID_GATEWAY', os.path.join(ROOT, 'build', 'release', 'grid-gateway'))
MARKER = re.compile(r'^ *<!-- (file|run|output)(?:: (.*?))? -->\n+ *```[a-z]*\n(.*?)^ *```$', re.M | re.S)
LIMIT_S = 60


def blocks(text):
    """(line, what, option, body) of every marked block."""
    for found in MARKER.finditer(text):
        yield text.count('\n', 0, found.start()) + 1, found[1], found[2] or '', found[3]


def free_ports(n):
    held = [socket.socket() for _ in range(n)]
    for one in held:
        one.bind(('127.0.0.1', 0))
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def matches(line, wanted):
    """Blanks count once: columns may be wider than in the document."""
    pattern = re.escape(' '.join(wanted.split())).replace('…', '.*')
    return re.search('^' + pattern + '$', ' '.join(line.split())) is not None


def missing(output, wanted):
    """The first wanted line that does not come, or None."""
    lines = iter(output.splitlines())
    for one in filter(str.strip, wanted.splitlines()):
        if not any(matches(line, one) for line in lines):
            return one
    return None


class Page:
    """Runs the blocks of one page; what it starts ends with it."""

    def __init__(self, path, folder):
        with open(path, encoding='utf-8') as f:
            self.text = f.read()
        self.name, self.folder, self.running, self.output = os.path.relpath(path, ROOT), str(folder), [], ''
        named = sorted(set(re.findall(r'127\.0\.0\.1:(\d+)', ''.join(body for _, _, _, body in blocks(self.text)))))
        self.ports = dict(zip(named, map(str, free_ports(len(named)))))
        self.env = dict(os.environ, PATH=os.pathsep.join([os.path.dirname(BINARY), os.path.join(ROOT, '.venv', 'bin'),
                                                          os.environ['PATH']]), NO_COLOR='1', HOME=self.folder)

    def local(self, text):
        return re.sub(r'127\.0\.0\.1:(\d+)', lambda found: '127.0.0.1:' + self.ports[found[1]], text)

    def fail(self, line, words):
        raise AssertionError('%s:%d: %s' % (self.name, line, words))

    def run(self):
        """Number of blocks that were run or compared."""
        steps = list(blocks(self.text))
        for line, what, option, body in steps:
            body = self.local(body)
            if what == 'file':
                with open(os.path.join(self.folder, option), 'w', encoding='utf-8') as f:
                    f.write(body)
            elif what == 'output':
                lacks = missing(self.output, body)
                if lacks is not None:
                    self.fail(line, 'the output has no line\n    %s\nwhere it was expected. It is\n%s' % (lacks, self.output))
            elif option.startswith('until '):
                self.start(line, body, option[len('until '):])
            else:
                self.call(line, body, option)
        return len(steps)

    def call(self, line, body, option):
        done = subprocess.run(['bash', '-euo', 'pipefail', '-c', body], cwd=self.folder, env=self.env, text=True, timeout=LIMIT_S,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.output = done.stdout
        if (done.returncode != 0) != (option == 'fails'):
            self.fail(line, 'ended with %d\n%s\n%s' % (done.returncode, body, done.stdout))

    def start(self, line, body, text):
        process = subprocess.Popen(['bash', '-eu', '-c', body], cwd=self.folder, env=self.env, text=True, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        said, seen = [], threading.Event()

        def read():
            for one in process.stdout:
                said.append(one)
                if self.local(text) in one:
                    seen.set()
            seen.set()

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        self.running.append((process, reader))
        if not seen.wait(LIMIT_S) or not any(self.local(text) in one for one in said):
            self.fail(line, 'no line with %r\n%s\n%s' % (text, body, ''.join(said)))
        self.output = ''.join(said)

    def stop(self):
        for process, reader in reversed(self.running):
            for sent in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(process.pid, sent)
                except ProcessLookupError:
                    break
                try:
                    process.wait(10)
                    break
                except subprocess.TimeoutExpired:
                    continue
            process.wait()
            reader.join(5)
            process.stdout.close()
