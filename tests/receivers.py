"""A webhook receiver on loopback: it says what to answer, and keeps all that came."""

import base64
import hashlib
import hmac
import json
import ssl
import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()


class Receiver:
    """What came, by delivery id; `answers(id, number of the try)` is the status of the answer."""

    def __init__(self, answers=lambda _id, _number: 204):
        self.answers, self.came, self.accepted = answers, {}, set()
        self.asked_for = []  #: names that TLS was asked for
        self._changed = threading.Condition()

    def take(self, path, headers, body):
        delivery_id, at = headers["webhook-id"], headers["webhook-timestamp"]
        signed = hmac.new(b"k" * 32, f"{delivery_id}.{at}.".encode() + body, hashlib.sha256).digest()
        assert headers["webhook-signature"] == f"v1,{base64.b64encode(signed).decode()}"
        with self._changed:
            tries = self.came.setdefault(delivery_id, [])
            tries.append((path, body, dict(headers)))
            status = self.answers(delivery_id, len(tries))
            if status < 300:
                self.accepted.add(delivery_id)
            self._changed.notify_all()
        return status

    def await_accepted(self, count, seconds=120):
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.accepted) >= count, seconds), len(self.accepted)

    def await_tries(self, count, seconds=120):
        with self._changed:
            assert self._changed.wait_for(lambda: sum(map(len, self.came.values())) >= count, seconds), self.came

    def facts(self, delivery_id):
        (body,) = {body for _, body, _ in self.came[delivery_id]}
        return json.loads(body)


@contextmanager
def receiving(certificate=None, host="127.0.0.1", **how):
    """Serve one, with its URL in `url`; with the files of a certificate and its key over TLS."""
    receiver = Receiver(**how)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            length = int(self.headers["content-length"])
            body = self.rfile.read(length)
            if len(body) < length:  # its sender was killed
                self.close_connection = True
                return
            status = receiver.take(self.path, self.headers, body)
            self.send_response(status)
            if status in {301, 307}:
                self.send_header("location", "/elsewhere")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_):
            """Say nothing."""

        def handle(self):
            with suppress(ConnectionError):  # likewise
                super().handle()

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

    with Server(("127.0.0.1", 0), Handler) as server:
        if certificate:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(*certificate)
            tls.sni_callback = lambda _socket, name, _context: receiver.asked_for.append(name)
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        receiver.url = f"{'https' if certificate else 'http'}://{host}:{server.server_port}/hook?key=s"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield receiver
        server.shutdown()
