"""Worker processes forked from one that has imported the libraries: else every start imports LangGraph for seconds."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import warnings
from multiprocessing import connection, forkserver

import celery.__main__

#: What `celery -A outrider.worker.main worker` imports, apart from the module that reads the environment.
LIBRARIES = ["outrider.worker.process", "outrider.worker.checkup", "celery.bin.worker", "celery.apps.worker"]
AGENTS = ["langchain.agents", "langchain.agents.middleware"]

_fork = multiprocessing.get_context("forkserver")
_fork.set_forkserver_preload(LIBRARIES + AGENTS)


def _become(output, environment, args):
    os.dup2(output.fileno(), 1)
    os.dup2(output.fileno(), 2)
    output.close()
    sys.stdout, sys.stderr = (os.fdopen(number, "w", 1, encoding="utf-8") for number in (1, 2))
    warnings.simplefilter("ignore")
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["celery", *args]
    sys.exit(celery.__main__.main())


class ForkedCelery:
    """`celery …` with these arguments and this environment, with the face of `subprocess.Popen`."""

    def __init__(self, args, environment):
        _start_server()
        reader, writer = _fork.Pipe(duplex=False)
        self._process = _fork.Process(target=_become, args=(writer, environment, args), daemon=True)
        self._process.start()
        writer.close()
        self.stdout = os.fdopen(os.dup(reader.fileno()), encoding="utf-8")
        reader.close()
        self.pid = self._process.pid
        self._reading = threading.Lock()  # its exit code can be read only once

    def poll(self):
        with self._reading:
            return self._process.exitcode

    def wait(self, timeout=None):
        if not connection.wait([self._process.sentinel], timeout):
            raise subprocess.TimeoutExpired("celery", timeout)
        return self.poll()

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self):
        self.send_signal(signal.SIGTERM)

    def kill(self):
        self.send_signal(signal.SIGKILL)


def _start_server():
    # LangGraph reads it at import, as in `outrider.worker.main`.
    os.environ["LANGGRAPH_STRICT_MSGPACK"] = "true"
    forkserver.ensure_running()
    del os.environ["LANGGRAPH_STRICT_MSGPACK"]
