"""One node of the chaos test, in a process of its own: it talks, works and asks until it is told to stop.

    python chaos_node.py NAME NAMESERVER REPORT_FILE stable|doomed

A stable one keeps an account of all that it sent and got, and writes it down at the end; one that is doomed
keeps none, since it will be killed.
"""

import json
import os
import sys
import threading
import time

import oz

EVERY = 0.1
WARM_UP = 3.0


class Account:
    """What came of what: by sender and life, the numbers that came and those that are missing."""

    def __init__(self):
        self.lock = threading.Lock()
        self.next = {}
        self.first = {}
        self.missing = 0
        self.out_of_order = 0
        self.jobs = []
        self.shared_jobs = []
        self.replies = self.timeouts = self.nobody = self.wrong = 0

    def talk(self, message):
        sender, life, number = message.payload
        key = f"{sender}/{life}"
        with self.lock:
            expected = self.next.setdefault(key, number)
            self.first.setdefault(key, number)
            if number < expected:
                self.out_of_order += 1
            self.missing += max(0, number - expected)
            self.next[key] = max(expected, number + 1)


def threads():
    return sorted(one.name.rstrip("0123456789") for one in threading.enumerate())


def state():
    with open("/proc/self/statm") as file:
        resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return {"fds": len(os.listdir("/proc/self/fd")), "threads": threads(), "resident": resident}


def ask(node, account, number):
    """Ask one question, and see that the answer is to it."""
    try:
        reply = node.request("svc.double", number, timeout=2.0)
    except oz.NoResponders:
        account.nobody += 1
    except oz.Timeout:
        account.timeouts += 1
    else:
        account.replies += 1
        account.wrong += reply.payload != 2 * number


def main(name, nameserver, report, kind):
    account, stop, life = Account(), threading.Event(), time.time_ns()
    is_stable = kind == "stable"
    with oz.Node(name, nameserver=nameserver, join_timeout=30.0) as node:
        node.subscribe("ctl.stop", handler=lambda _: stop.set())
        node.subscribe("talk.*", handler=account.talk if is_stable else lambda _: None)
        node.subscribe("svc.double", handler=lambda one: one.reply(2 * one.payload), group="doubling")
        if is_stable:
            node.subscribe("job.>", handler=lambda one: account.jobs.append(one.payload), group="stable")
        node.subscribe("job.>", handler=lambda one: account.shared_jobs.append(one.payload), group="all")
        node.wait_ready(timeout=30.0)
        print("ready", flush=True)
        began, number, sent_at = time.monotonic(), 0, {}
        before = None
        while not stop.wait(EVERY):
            if before is None and time.monotonic() - began > WARM_UP:
                before = state()
            node.publish(f"talk.{name}", [name, life, number])
            if is_stable:
                sent_at[number] = time.time()
                node.publish(f"job.{name}", [name, number])
                ask(node, account, number)
            number += 1
        node.flush()
        if is_stable:
            # What was sent last is on its way.
            time.sleep(3.0)
            after = state()
            stats = node.stats
            with open(report, "w") as file:
                json.dump(
                    {
                        "name": name,
                        "life": life,
                        "sent": number,
                        "sent_at": sent_at,
                        "next": account.next,
                        "first": account.first,
                        "missing": account.missing,
                        "out_of_order": account.out_of_order,
                        "jobs": account.jobs,
                        "shared_jobs": account.shared_jobs,
                        "asked": [account.replies, account.nobody, account.timeouts, account.wrong],
                        "lost": stats.lost,
                        "stats": repr(stats),
                        "peers": sorted(one.name for one in node.peers),
                        "before": before or after,
                        "after": after,
                    },
                    file,
                )
            # Nobody leaves while others write down who is there.
            time.sleep(3.0)


if __name__ == "__main__":
    main(*sys.argv[1:])
