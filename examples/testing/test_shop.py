"""Tests of shop.py: hours of virtual time in milliseconds. Run them with pytest."""

import asyncio

from shop import Foreman, Worker, ask_price, publish_changes

import oz.testing


def test_thermometer_publishes_changes_only(oz_bus):
    async def readings():
        for degrees in (20, 20, 21, 21, 20):
            await asyncio.sleep(600)
            yield "attic", degrees

    async def main():
        publisher, subscriber = oz_bus.publisher(), oz_bus.subscriber()
        subscriber.subscribe("temp.*")
        await subscriber.wait_ready(timeout=5)
        await publish_changes(publisher, readings())
        return [(await subscriber.receive(timeout=5)).payload for _ in range(3)]

    assert oz_bus.run(main()) == [b"20", b"21", b"20"]
    assert oz_bus.now() > 3000


def test_shop_asks_again_until_the_service_is_back(oz_bus):
    async def price(message):
        return 42

    async def main():
        async with oz_bus.node("shop") as shop:
            asking = asyncio.create_task(ask_price(shop, "tea"))
            await asyncio.sleep(5)
            async with oz_bus.node("prices") as prices:
                prices.subscribe("svc.price", handler=price)
                return await asking

    assert oz_bus.run(main()) == 42


def test_job_of_a_worker_that_dies_is_done_by_another(oz_bus):
    async def main():
        async with oz_bus.node("office") as office, oz_bus.node("ann") as ann, oz_bus.node("bob") as bob:
            workers = [Worker(ann), Worker(bob)]
            foreman = Foreman(office, patience=60)
            await office.wait_ready("ann", "bob")
            doing = asyncio.create_task(foreman.have_done("paint", seconds=30))
            await asyncio.sleep(10)
            busy = next(worker.node for worker in workers if worker.node.stats.received > 0)
            oz_bus.kill(busy)
            await doing
            return {"ann", "bob"} - {busy.name}, set(foreman.done.values())

    left, did_it = oz_bus.run(main())
    assert left == did_it


def test_worker_reports_what_it_has_done():
    class Node:
        name = "ann"

        def __init__(self):
            self.published = []

        def subscribe(self, pattern, **options):
            pass

        async def publish(self, subject, payload):
            self.published.append((subject, payload))

    node = Node()
    with asyncio.Runner(loop_factory=oz.testing.VirtualLoop) as runner:
        runner.run(Worker(node).work(oz.testing.message("job.paint", {"seconds": 3600})))
    assert node.published == [("done", {"job": "job.paint", "by": "ann"})]
