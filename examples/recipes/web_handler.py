"""An asyncio web server publishes each request on the bus. A framework would create the node in its lifespan."""

import asyncio
import urllib.request

import oz.asyncio

BUS = "web"


async def main() -> None:
    async with oz.asyncio.Node("web", bus=BUS) as web, oz.asyncio.Node("audit", bus=BUS) as audit:

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            method, path, _ = (await reader.readline()).decode().split()
            await web.publish("web" + path.replace("/", "."), {"method": method})
            writer.write(b"HTTP/1.0 202 Accepted\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            writer.close()

        orders = audit.subscribe("web.order.*")
        await web.wait_ready(subscriber="web.order.17")
        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]

        response = await asyncio.to_thread(urllib.request.urlopen, f"http://127.0.0.1:{port}/order/17")
        message = await orders.receive(timeout=5)
        print(response.status, message.subject, message.payload)
        response.close()
        server.close()


asyncio.run(main())
