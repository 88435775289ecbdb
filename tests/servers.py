"""Servers that some tests need and that not every machine has: RabbitMQ, and a Redis that speaks TLS or has users."""

import contextlib
import datetime as dt
import ipaddress
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from kombu import Connection
from redis import Redis
from redis.exceptions import RedisError

from outrider.shared.errors import ConfigError
from outrider.shared.tied_programs import tied

READY_SECONDS, LOOK_SECONDS = 120, 0.05
# Debian's own command for root changes the user and thereby loses our settings.
RABBITMQ = next(
    filter(None, map(shutil.which, ("/usr/lib/rabbitmq/bin/rabbitmq-server", "rabbitmq-server"))),
    None,
)
EPMD = shutil.which("epmd")
PASSWORD = "hush-hush"


def free_ports(count):
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [listener.getsockname()[1] for listener in listeners]


class Server:
    """Programs of one's own, ended with the `with` block or with this process."""

    def __init__(self, folder):
        self.folder = folder
        self._programs = []

    def start(self, *command, **env):
        with (self.folder / "output.log").open("ab") as output:
            program = subprocess.Popen(
                tied([str(word) for word in command]),
                env={**os.environ, "LC_ALL": "C", **env},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                process_group=0,
            )
        self._programs.append(program)
        return program

    def stop(self, program, how=signal.SIGTERM):
        program.send_signal(how)
        try:
            program.wait(30)
        except subprocess.TimeoutExpired:
            program.kill()
            program.wait()

    def answers(self, program, ask):
        """Whether it answers; `False` if it ended instead."""
        deadline = time.monotonic() + READY_SECONDS
        while program.poll() is None:
            try:
                ask()
            except (OSError, RedisError) as error:
                if time.monotonic() > deadline:
                    raise AssertionError((self.folder / "output.log").read_text()) from error
                time.sleep(LOOK_SECONDS)
            else:
                return True
        return False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for program in reversed(self._programs):
            if program.poll() is None:
                self.stop(program)


class RabbitMQ(Server):
    """A RabbitMQ on loopback, its own Erlang port mapper beside it, with vhosts that each test takes one of."""

    VHOSTS = 40

    def __enter__(self):
        self.port, distribution, mapper = free_ports(3)
        self._left = iter(range(self.VHOSTS))
        names = [f"v{number}" for number in range(self.VHOSTS)]
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        definitions = {
            "users": [{"name": "outrider", "password": PASSWORD, "tags": ""}],
            "vhosts": [{"name": name} for name in names],
            "permissions": [{"user": "outrider", "vhost": name, **everything} for name in names],
        }
        (self.folder / "definitions.json").write_text(json.dumps(definitions))
        (self.folder / "plugins").write_text("[].")
        (self.folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self.port}\nload_definitions = {self.folder}/definitions.json\n"
        )
        self._env = {
            "HOME": str(self.folder),
            "RABBITMQ_NODENAME": f"outrider{self.port}@localhost",
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.folder / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(mapper),
            "RUNNING_UNDER_SYSTEMD": "yes",  # its script becomes the server, whose pid we then have
        }
        self.start(EPMD, "-port", mapper, "-address", "127.0.0.1")
        self._launch()
        return self

    def _launch(self):
        self._server = self.start(RABBITMQ, **self._env)
        assert self.answers(self._server, self._ask), (self.folder / "output.log").read_text()

    def _ask(self):
        with Connection(self._url(self.VHOSTS - 1), connect_timeout=5) as connection:
            connection.connect()

    def restart(self):
        self.stop(self._server)
        self._launch()

    def _url(self, number):
        return f"amqp://outrider:{PASSWORD}@127.0.0.1:{self.port}/v{number}"

    def vhost(self):
        """The URL of a vhost that no other test has."""
        return self._url(next(self._left))


class GuardedRedis(Server):
    """A Redis with TLS, or with users; `None` as its URL where this machine's server cannot do that."""

    def __init__(self, folder, *, tls=False, acl=()):
        super().__init__(folder)
        self._tls, self._acl = tls, acl
        self.url = None

    def __enter__(self):
        program = _redis_program()
        if program is None:
            return self
        (self.port,) = free_ports(1)
        options = {"bind": "127.0.0.1", "dir": self.folder, "save": "", "requirepass": PASSWORD}
        if self._tls:
            self.ca, certificate, key = make_certificates(self.folder)
            options |= {"port": 0, "tls-port": self.port, "tls-auth-clients": "no"}
            options |= {"tls-cert-file": certificate, "tls-key-file": key, "tls-ca-cert-file": self.ca}
        else:
            options |= {"port": self.port}
        server = self.start(program, *(word for name, value in options.items() for word in (f"--{name}", value)))
        scheme, query = ("rediss", f"?ssl_ca_certs={self.ca}") if self._tls else ("redis", "")
        url = f"{scheme}://:{PASSWORD}@127.0.0.1:{self.port}/0{query}"

        def ask():
            with Redis.from_url(url) as client:
                client.ping()
                for command in self._acl:
                    client.execute_command(*command.split())

        if self.answers(server, ask):
            self.url = url
        return self


def _redis_program():
    from outrider.orchestrator.embedded import find_server

    try:
        return find_server()
    except ConfigError:
        return None


def make_certificates(folder, host="127.0.0.1"):
    """A certificate authority, and a certificate of it for an address or a name with its key: their files."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    def name(text):
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

    signs_certificates = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    now = dt.datetime.now(dt.UTC)
    authority, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))

    def sign(subject, public_key, *extensions):
        builder = (
            x509.CertificateBuilder(name("outrider tests"), name(subject), public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=1))
        )
        # Which keys these are: Python 3.13 and later refuse certificates that do not say so.
        extensions += (
            x509.SubjectKeyIdentifier.from_public_key(public_key),
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()),
        )
        for extension in extensions:
            critical = isinstance(extension, x509.BasicConstraints | x509.KeyUsage)
            builder = builder.add_extension(extension, critical=critical)
        return builder.sign(authority, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    try:
        subject = x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        subject = x509.DNSName(host)
    files = [Path(folder, f) for f in ("ca.pem", "server.pem", "server.key")]
    is_authority = x509.BasicConstraints(ca=True, path_length=None)
    files[0].write_bytes(sign("outrider tests", authority.public_key(), is_authority, signs_certificates))
    files[1].write_bytes(sign(host, key.public_key(), x509.SubjectAlternativeName([subject])))
    files[2].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return files
