"""Change the number of partitions of an exchange, for the steps that are written from now on."""

from __future__ import annotations

from ffq_spark.errors import BadOption, ExchangeNotFound
from ffq_spark.exchange.ledger import routing
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.format import paths
from ffq_spark.format.records import RoutingRecord
from ffq_spark.options import MAX_PARTITIONS
from ffq_spark.store import Store


def rescale(store: Store, partitions: int) -> RoutingRecord:
    """Let all writes that begin from now on write `partitions` partitions.

    Steps that exist, and writes that are under way, keep their own number. A read combines
    partitions so that all steps have their greatest common divisor, without reading or writing a
    row. Raises Conflict if another call changes the number at the same time.

    >>> from ffq_spark.examples import tiny_exchange
    >>> exchange = tiny_exchange("memory://doc-rescale")
    >>> exchange.rescale(8).epoch
    1
    >>> exchange.info().partitions, exchange.info().write_partitions
    (4, 8)
    """
    if not 1 <= partitions <= MAX_PARTITIONS:
        message = f"partitions={partitions} must be from 1 to {MAX_PARTITIONS}"
        raise BadOption(message, option="partitions")
    ledger = Ledger(store)
    format = ledger.format()
    if format is not None:
        format.check_writer(store.url(paths.FORMAT))
        # A first write that died after its outcome has decided about the exchange.
        ledger.publish_pending()
    exchange = ledger.exchange()
    if exchange is None:
        raise ExchangeNotFound(f"nothing has been committed to {store.url()} yet")
    if partitions > 1 and not exchange.keys:
        message = f"{partitions} partitions need keys, and the exchange at {store.url()} has none"
        raise BadOption(message, option="partitions")
    return routing.begin_epoch(store, exchange, partitions)
