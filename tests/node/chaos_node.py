"""One node of the chaos test, in a process of its own: it talks, works and asks until it is told to stop.

    python chaos_node.py NAME NAMESERVER REPORT_FILE stable|doomed NODES STABLE_ONES

A stable one keeps an account of all that it sent and got, and writes it down at the end; one that is doomed
keeps none, since it will be killed. A stable one also says when it has met all others, and when its account
is written; after that it stays until its input ends.
"""

import json
import os
import sys
import threading
import time

import oz

EVERY = 0.1
WARM_UP = 2.0
LONG = 120.0
"""Seconds. It only ends what hangs."""


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


def settled(before):
    """Give the state once the links to those who have gone are closed, or too long after that."""
    ends = time.monotonic() + LONG / 4
    while (now := state())["fds"] > before["fds"] and time.monotonic() < ends:
        time.sleep(0.1)
    return now


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


def until(condition):
    ends = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < ends, f"still not so after {LONG:g} s"
        time.sleep(0.01)


def have_all(node, subscriptions, done, count):
    """Wait until all that stable nodes have sent was handled: what each sends last says so."""
    node.flush()
    node.publish("done", node.name)
    node.flush()
    until(lambda: len(done) == count)
    for one in subscriptions:
        assert one.queue.drain(LONG)


def main(name, nameserver, report, kind, nodes, stable_ones):
    account, stop, life = Account(), threading.Event(), time.time_ns()
    is_stable = kind == "stable"
    with oz.Node(name, nameserver=nameserver, join_timeout=LONG) as node:
        done = set()
        node.subscribe("ctl.stop", handler=lambda _: stop.set())
        node.subscribe("done", handler=lambda one: done.add(one.payload))
        work = [node.subscribe("talk.*", handler=account.talk if is_stable else lambda _: None)]
        node.subscribe("svc.double", handler=lambda one: one.reply(2 * one.payload), group="doubling")
        if is_stable:
            work.append(
                node.subscribe("job.>", handler=lambda one: account.jobs.append(one.payload), group="stable")
            )
        work.append(
            node.subscribe("job.>", handler=lambda one: account.shared_jobs.append(one.payload), group="all")
        )
        node.wait_ready(timeout=LONG)
        print("ready", flush=True)
        began, number, sent_at = time.monotonic(), 0, {}
        before = None
        while not stop.wait(EVERY):
            if before is None and time.monotonic() - began > WARM_UP and len(node.peers) == int(nodes) - 1:
                before = state()
                print("met", flush=True)
            node.publish(f"talk.{name}", [name, life, number])
            if is_stable:
                sent_at[number] = time.time()
                node.publish(f"job.{name}", [name, number])
                ask(node, account, number)
            number += 1
        if is_stable:
            have_all(node, work, done, int(stable_ones))
            after = settled(before)
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
                        "before": before,
                        "after": after,
                    },
                    file,
                )
            print("written", flush=True)
            # Nobody leaves while others write down who is there.
            sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
