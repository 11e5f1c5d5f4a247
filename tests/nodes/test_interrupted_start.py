"""Signal handlers that raise inside the constructor of a node: no thread or socket remains, and no call hangs."""

import subprocess
import sys

import pytest

from support.sizes import one_of_each, size

# Python calls signal handlers at the start of a function, and after calls. The kind "calls" means such places in all
# of oz and pyzmq. The kind "bytecodes" means all bytecodes in the constructor of the node, after its engine starts.
PROGRAM = """
import asyncio, faulthandler, gc, os, sys, threading, warnings
import oz, oz.asyncio

warnings.simplefilter("ignore", ResourceWarning)
kind, places, step, directory = sys.argv[1:]

class Interrupt(BaseException):
    pass

def make(module):
    options = oz.NodeOptions(directory=directory)
    return module.Node("interrupted", bus="test", bind="tcp://127.0.0.1:*", options=options)

async def start():
    node = make(oz.asyncio)
    sys.setprofile(None)
    sys.settrace(None)
    await node.close(timeout=0)

def attempt(place):
    count = 0
    def profile(frame, event, argument):
        nonlocal count
        path = frame.f_code.co_filename
        if event in ("call", "c_return") and ("/oz/" in path or "/zmq/" in path):
            count += 1
            if count == place:
                sys.setprofile(None)
                raise Interrupt
    def trace(frame, event, argument):
        nonlocal count
        path, name = frame.f_code.co_filename, frame.f_code.co_name
        if not (path.endswith("/oz/node/base.py") and name == "__init__") and name != "_begin":
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            count += 1
            if count == place:
                sys.settrace(None)
                raise Interrupt
        return trace
    try:
        sys.setprofile(profile) if places == "calls" else sys.settrace(trace)
        if kind == "threads":
            node = make(oz)
            sys.setprofile(None)
            sys.settrace(None)
            node.close(timeout=0)
        else:
            asyncio.run(start())
    except Interrupt:
        pass
    finally:
        sys.setprofile(None)
        sys.settrace(None)
    node = None
    gc.collect()
    for thread in threading.enumerate():
        if thread is not threading.main_thread():
            thread.join()
    gc.collect()
    return count

faulthandler.dump_traceback_later(300, exit=True)
last = attempt(0)
before = len(os.listdir("/proc/self/fd"))
for place in range(1, last, last // 12 if places == "calls" else int(step)):
    attempt(place)
after = len(os.listdir("/proc/self/fd"))
assert after <= before + (3 if places == "calls" else 0), f"{after - before} descriptors are open"
assert os.listdir(directory) == [], "a socket is left"
print([one.name for one in threading.enumerate()])
"""


@pytest.mark.sized
@pytest.mark.timeout(360)
@pytest.mark.skipif(sys.platform != "linux", reason="the program counts descriptors in /proc")
@pytest.mark.parametrize(("kind", "places"), one_of_each(["threads", "asyncio"], ["calls", "bytecodes"]))
def test_an_interrupted_start_leaves_nothing(kind, places, directory):
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, kind, places, str(size(7, 1)), f"{directory}/bus"],
        capture_output=True,
        text=True,
        timeout=330,
    )
    assert (ended.returncode, ended.stdout) == (0, "['MainThread']\n"), ended.stderr
