"""What stands between the gateway and a site in some cases: a relay that may end, cut or encrypt, and a wire that loses packets."""
import contextlib
import fcntl
import os
import random
import select
import socket
import ssl
import struct
import subprocess
import threading

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454ca, 1, 0x1000


class Relay:
    """Takes connections and passes them on to an address. `cut`: of each answer so many bytes go back, then comes the end."""

    def __init__(self, address, tls=None):
        host, _, port = address.rpartition(':')
        self.to, self.tls, self.cut, self.open = (host, int(port)), tls, None, set()
        self.server = socket.create_server(('127.0.0.1', 0), backlog=256)
        self.address = '127.0.0.1:%d' % self.server.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.server.accept()
                threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            tls = self.tls
            if tls:
                client = tls.wrap_socket(client, server_side=True)
            stack.callback(client.close)
            site = stack.enter_context(socket.create_connection(self.to))
            self.open.add(client)
            stack.callback(self.open.discard, client)
            if tls is self.tls:     # else the certificate was changed meanwhile: drop_all may have come before this was open
                self.pass_on(client, site)

    def pass_on(self, client, site):
        back = 0
        while True:
            ready, _, _ = select.select([client, site], [], [])
            for one in ready:
                data = one.recv(65536)
                while isinstance(one, ssl.SSLSocket) and one.pending():
                    data += one.recv(65536)
                if not data:
                    return
                if one is client:
                    site.sendall(data)
                    back = 0
                    continue
                if self.cut is not None and back + len(data) >= self.cut:
                    client.sendall(data[:self.cut - back])
                    return
                back += len(data)
                client.sendall(data)

    def drop_all(self):
        """Ends the connections that are there."""
        for one in list(self.open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def stop(self):
        self.server.close()
        self.drop_all()


class LossyWire:
    """A network namespace behind two tunnel devices; each packet between them is lost with a chance, which may change. Needs root.

    The loss is played here, not by the kernel's netem, which not every kernel has.
    """
    NAME, OURS, THEIRS = 'grid-faults', '10.213.77.1', '10.213.77.2'

    def __init__(self, seed):
        self.loss, self.dice, self.lost, self.passed = 0.0, random.Random(seed), 0, 0
        self.run('ip', 'netns', 'add', self.NAME)
        self.ours, self.theirs = self.device('gridtun0'), self.device('gridtun1')
        self.run('ip', 'link', 'set', 'gridtun1', 'netns', self.NAME)
        self.run('ip', 'addr', 'add', self.OURS + '/30', 'dev', 'gridtun0')
        self.run('ip', 'link', 'set', 'gridtun0', 'up')
        for words in (('addr', 'add', self.THEIRS + '/30', 'dev', 'gridtun1'), ('link', 'set', 'gridtun1', 'up'),
                      ('link', 'set', 'lo', 'up')):
            self.run('ip', '-n', self.NAME, *words)
        self.stopped = os.pipe()
        self.thread = threading.Thread(target=self.carry, daemon=True)
        self.thread.start()

    @staticmethod
    def run(*words):
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode != 0:
            raise OSError('%s: %s' % (' '.join(words), done.stderr.strip()))

    @staticmethod
    def device(name):
        fd = os.open('/dev/net/tun', os.O_RDWR | os.O_CLOEXEC)
        fcntl.ioctl(fd, TUNSETIFF, struct.pack('16sH', name.encode(), IFF_TUN | IFF_NO_PI))
        return fd

    def carry(self):
        while True:
            ready, _, _ = select.select([self.ours, self.theirs, self.stopped[0]], [], [])
            if self.stopped[0] in ready:
                return
            for fd in ready:
                packet = os.read(fd, 65536)
                if self.dice.random() < self.loss:
                    self.lost += 1
                    continue
                self.passed += 1
                with contextlib.suppress(OSError):
                    os.write(self.theirs if fd == self.ours else self.ours, packet)

    def stop(self):
        os.write(self.stopped[1], b'x')
        self.thread.join(10)
        for fd in (self.ours, self.theirs, *self.stopped):
            os.close(fd)
        subprocess.run(['ip', 'netns', 'del', self.NAME], capture_output=True)
