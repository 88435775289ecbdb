"""An OpenAI-compatible server on loopback: replies as a test says, whole or streamed, and keeps what it was asked."""

import http.server
import json
import threading
from contextlib import contextmanager


class Stub(http.server.ThreadingHTTPServer):
    """`reply` takes a request and gives the assistant's message, with `content` or `tool_calls`; or nothing: 401."""

    def __init__(self, reply):
        super().__init__(("127.0.0.1", 0), Handler)
        self.reply, self.asked = reply, []


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(request)
        reply = self.server.reply(request)
        if reply is None:
            self._send("application/json", '{"error": {"message": "no such key"}}', 401)
            return
        message = {"role": "assistant", "content": None, **reply}
        reason = "tool_calls" if message.get("tool_calls") else "stop"
        usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
        about = {"id": "c", "created": 0, "model": "stub"}
        if request.get("stream"):
            for index, call in enumerate(message.get("tool_calls", ())):
                call["index"] = index
            chunks = [
                {"choices": [{"index": 0, "delta": message, "finish_reason": None}]},
                {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
                {"choices": [], "usage": usage},
            ]
            lines = [json.dumps({**about, "object": "chat.completion.chunk", **chunk}) for chunk in chunks]
            self._send("text/event-stream", "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"]))
        else:
            choices = [{"index": 0, "finish_reason": reason, "message": message}]
            whole = {**about, "object": "chat.completion", "choices": choices, "usage": usage}
            self._send("application/json", json.dumps(whole))

    def _send(self, kind, text, status=200):
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def call(number, name, **args):
    """Give one call of a tool, as part of a message's `tool_calls`."""
    return {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": json.dumps(args)}}


@contextmanager
def serving(reply, monkeypatch):
    """Serve `openai:…` models of this process."""
    server = Stub(reply)
    monkeypatch.setenv("OPENAI_API_KEY", "stub")
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{server.server_port}/v1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
