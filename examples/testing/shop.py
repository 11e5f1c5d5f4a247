"""What is to be tested: a thermometer, a shop that asks a slow service again and again, and a worker."""

import asyncio

import oz


async def publish_changes(publisher, readings):
    """Publish each reading that differs from the one before."""
    last = None
    async for place, degrees in readings:
        if degrees != last:
            await publisher.publish(f"temp.{place}", str(degrees).encode())
        last = degrees


async def ask_price(node, item, tries=5):
    """Return the price of an item. Wait longer after each request without a reply."""
    for attempt in range(tries):
        try:
            answer = await node.request("svc.price", item, timeout=2)
        except (oz.Timeout, oz.NoResponders):
            await asyncio.sleep(2**attempt)
        else:
            return answer.payload
    return None


class Worker:
    """Does the jobs that a group of workers shares, and reports each that is done."""

    def __init__(self, node):
        self.node = node
        node.subscribe("job.*", handler=self.work, group="workers")

    async def work(self, message):
        await asyncio.sleep(message.payload["seconds"])
        await self.node.publish("done", {"job": message.subject, "by": self.node.name})


class Foreman:
    """Gives out jobs, and gives a job out again that is not done in its time."""

    def __init__(self, node, patience):
        self.node = node
        self.patience = patience
        self.done = {}
        node.subscribe("done", handler=self.note)

    def note(self, message):
        self.done[message.payload["job"]] = message.payload["by"]

    async def have_done(self, name, seconds):
        while f"job.{name}" not in self.done:
            await self.node.publish(f"job.{name}", {"seconds": seconds})
            await asyncio.sleep(self.patience)
