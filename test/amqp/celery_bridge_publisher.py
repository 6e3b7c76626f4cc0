"""Publishes with the real Celery while a bridge is running: with a result backend, so that every task waits for an answer."""

import os
from datetime import datetime, timedelta, timezone

from celery import Celery, chain, group

app = Celery("shop", broker=os.environ["AMQP_URL"], backend="rpc://")
app.conf.update(
    task_default_queue="bridged",
    task_queue_max_priority=10,
    enable_utc=True,
    broker_connection_retry=False,
    task_publish_retry=False,
)
now = datetime.now(timezone.utc)


@app.task(bind=True, name="shop.charge", max_retries=5)
def charge(self, order, currency="EUR"):
    return order


charge.apply_async((1,), {"currency": "CHF"}, task_id="b-plain")
charge.apply_async((2,), eta=now + timedelta(hours=2), task_id="b-eta")
charge.apply_async((3,), countdown=1800, task_id="b-countdown")
charge.apply_async((4,), expires=3600, task_id="b-expires")
charge.apply_async((5,), eta=now + timedelta(minutes=30), expires=now + timedelta(hours=1), task_id="b-both")
charge.apply_async((6,), priority=9, task_id="b-urgent")
charge.apply_async((7,), priority=0, task_id="b-idle")
charge.apply_async((8,), retries=3, task_id="b-retries")
charge.apply_async((9,), ignore_result=True, task_id="b-ignored")
charge.apply_async((10,), time_limit=300, soft_time_limit=240, task_id="b-limited")
charge.apply_async((9007199254740993,), {"currency": "caf\u00e9 \u65e5\u672c"}, task_id="b-exact")
charge.apply_async((11,), link=charge.si(12), link_error=charge.si(13), task_id="b-linked")
chain(charge.si(20).set(task_id="b-chain"), charge.si(21), charge.si(22)).apply_async()
group(charge.si(n).set(task_id=f"b-group-{n}") for n in (30, 31)).apply_async()
# The first of a worker's own retries: the same id, the next count, the wait as an ETA.
charge.push_request(id="b-retried", retries=1, called_directly=False, is_eager=False, args=[14], kwargs={},
                    delivery_info={"routing_key": "bridged", "exchange": ""}, root_id="b-retried")
charge.retry(countdown=600, throw=False)
charge.pop_request()
app.conf.task_protocol = 1
charge.apply_async((15,), retries=2, eta=now + timedelta(hours=2), task_id="b-first")
