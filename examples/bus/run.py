"""Starts the three programs of a small market-data bus, and ends them when the dashboard has five quotes.

The programs find each other, in any order of starts.
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent

started = [subprocess.Popen([sys.executable, HERE / f"{name}.py"]) for name in ("pricing", "prices")]
try:
    code = subprocess.call([sys.executable, HERE / "dashboard.py"])
finally:
    for process in started:
        process.terminate()
    for process in started:
        process.wait(timeout=20)
sys.exit(code)
