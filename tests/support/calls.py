"""How many functions are called: what work costs, whatever else the machine does."""

import sys


def count_calls(work):
    """Call something; give how many functions of Python it has called."""
    count = 0

    def note(frame, event, arg):
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count - 1
