"""Publishes one task of each shape with the real Celery, in one process: starting it is what costs."""

import os
from datetime import datetime, timedelta, timezone

from celery import Celery, chain

app = Celery("shop", broker=os.environ["AMQP_URL"])
app.conf.update(
    task_default_queue="celery",
    task_queue_max_priority=10,
    enable_utc=True,
    broker_connection_retry=False,
    task_publish_retry=False,
)
now = datetime.now(timezone.utc)


@app.task(bind=True, name="shop.charge", max_retries=5)
def charge(self, order, currency="EUR"):
    return order


app.send_task("shop.plain", args=[1], kwargs={"a": 9007199254740993}, task_id="t-plain")
app.send_task("shop.later", args=[2], eta=now + timedelta(hours=2), task_id="t-later")
app.send_task("shop.offset", args=[3], task_id="t-offset",
              eta=(now + timedelta(hours=2)).astimezone(timezone(timedelta(hours=5, minutes=30))))
app.send_task("shop.gone", args=[4], expires=now - timedelta(minutes=1), task_id="t-gone", queue="gone")
app.send_task("shop.fresh", args=[5], expires=now + timedelta(hours=1), task_id="t-fresh")
app.send_task("shop.urgent", args=[6], priority=9, task_id="t-urgent")
app.send_task("shop.limited", args=[7], time_limit=300, soft_time_limit=240, task_id="t-limited")
app.send_task("shop.packed", args=[8], compression="gzip", task_id="t-packed")
app.send_task("shop.pickled", args=[9], serializer="pickle", task_id="t-pickled")
chain(charge.si(10).set(task_id="t-chained"), charge.si(11)).apply_async()
# A worker's own retry, once and a second time: the same id, the next count, the wait as an ETA.
for done in (0, 1):
    charge.push_request(id="t-retried", retries=done, called_directly=False, is_eager=False, args=[12],
                        kwargs={}, delivery_info={"routing_key": "celery", "exchange": ""}, root_id="t-retried")
    charge.retry(countdown=3600, throw=False)
    charge.pop_request()
app.conf.task_protocol = 1
app.send_task("shop.first", args=[13], kwargs={"a": 1}, task_id="t-first", retries=2,
              eta=now + timedelta(hours=2))
