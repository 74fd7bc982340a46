"""A program for mypy to check; nothing runs it. Each `type: ignore` marks a mistake that mypy has to find. With
--strict mypy also reports each `type: ignore` at which it finds no mistake."""

import asyncio
from typing import Dict, List, Optional, Union

import unisono


def publish(client: unisono.Client) -> None:
    with unisono.Publisher("plant/1/heat", client=client) as heat:
        heat.publish(b"hot", key="oven", fields={"celsius": 81.5}, due_in=0.1)
        published: unisono.Published = heat.try_publish("hot")
        consumers: int = published.consumers
        heat.publish(b"hot", fields={"celsius": None})  # type: ignore[dict-item]
        heat.publish(due_in="soon")  # type: ignore[arg-type]
        with heat.loan(1000, key="oven", due_in=0.1) as memory:
            view: memoryview = memory
        loan: unisono.Loan = heat.loan(view.nbytes)
        loan.publish()
        heat.loan("large")  # type: ignore[arg-type]
        refusals: List[unisono.Notice] = heat.rejected()
        print(consumers, refusals)


def consume(client: unisono.Client) -> None:
    with unisono.Subscriber(["plant/#", "lab/#"], client=client, filter="celsius > 80") as heat:
        reception: Optional[Union[unisono.Event, unisono.Notice]] = heat.receive(1.0)
        reception.topic  # type: ignore[union-attr]
        for event in heat:
            view: memoryview = event.payload
            fields: Dict[str, Union[bool, int, float, str]] = event.fields
            key: str = event.key  # type: ignore[assignment]
            print(view, fields, key)
        unisono.Subscriber("plant/#", queue="long")  # type: ignore[arg-type]


def answer(request: unisono.Event) -> str:
    return request.text()


async def both() -> None:
    async with unisono.Client() as client:
        async with unisono.Subscriber("plant/#", client=client) as heat, unisono.Publisher("plant/1") as one:
            await one.publish_async(b"hot", fields={"celsius": 81.5})
            await one.flush_async()
            await one.publish_async(3.5, criticality="high")  # type: ignore[arg-type]
            first: Union[unisono.Event, unisono.Notice] = await heat.receive_async()
            async for event in heat:
                text: str = event.text()
                print(first, text)


def main() -> None:
    with unisono.Client() as client:
        publish(client)
        consume(client)
    unisono.serve("sums", answer, count=1)
    reply: unisono.Event = unisono.request("sums", b"1 + 1", timeout=1.0)
    wrong: str = reply  # type: ignore[assignment]
    print(wrong)
    asyncio.run(both())
