"""What the tests have Spark's Python processes do first."""

import os
import socket
import subprocess
import sys
from pathlib import Path

from support.waiting import DEADLINE

PRELOADING = Path(__file__).parent / "preloading"
SECRET = b"open sesame"


def test_the_process_of_a_query_connects_before_it_imports_pyspark(tmp_path):
    """Spark would give it 10 s for both, however busy the machine is."""
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text("raise SystemExit(input())")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(DEADLINE)
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(tmp_path), str(PRELOADING)]),
            "PYTHON_WORKER_FACTORY_PORT": str(server.getsockname()[1]),
            "PYTHON_WORKER_FACTORY_SECRET": SECRET.decode(),
        }
        command = [sys.executable, "-m", "pyspark.sql.streaming.python_streaming_source_runner"]
        with subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as started:
            connection = server.accept()[0]
            with connection, connection.makefile("rb") as said:
                assert said.read(4 + len(SECRET)) == len(SECRET).to_bytes(4, "big") + SECRET
                assert started.poll() is None
            assert "imported" in started.communicate("imported\n", timeout=DEADLINE)[1]
