"""Read one exchange with DuckDB, Polars and pandas: through the service, and from its files.

python examples/service.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import duckdb
import polars
import pyarrow as pa

import ffq_spark as ffq

ROWS = 100_000


def best_customer(rows: pa.RecordBatchReader) -> tuple[int, float]:
    """Return the customer with the largest sum of amounts, and the sum."""
    connection = duckdb.connect()
    connection.register("orders", rows)
    sql = "select customer, round(sum(amount)) from orders group by 1 order by 2 desc limit 1"
    return connection.sql(sql).fetchall()[0]


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="ffq-service-") as base:
        root = str(Path(base) / "orders")
        ids = list(range(ROWS))
        table = pa.table({"customer": [i % 500 for i in ids], "amount": [i / 7 for i in ids]})
        with ffq.serve({"orders": root}, port=0, writable=True) as served:
            orders = ffq.connect(served.url).exchange("orders")
            write = orders.begin(table.schema, keys="customer", partitions=8)
            half = ROWS // 2
            write.put(0, table.slice(0, half))
            write.put(1, table.slice(half))
            print("written by two producers, step", write.commit(map_tasks=2)["step"])
            print("columns", orders.schema.names, "tickets", len(orders.tasks(min_tasks=4)))

            print("DuckDB, Flight:", best_customer(orders.read()))
            frame = polars.from_arrow(orders.read(columns=["customer"]).read_all())
            print("Polars, Flight:", frame.n_unique(), "customers")
            print("pandas, Flight:", orders.lookup(42).to_pandas()["amount"].count(), "rows of one")

        print("DuckDB, files: ", best_customer(ffq.Exchange(root).read()))
        paths = ffq.Exchange(root).parts()["file"].to_pylist()
        parts = [polars.read_ipc_stream(str(Path(root, path))) for path in paths]
        print("Polars, files: ", polars.concat(parts).height, "rows in", len(parts), "files")
        print("pandas, files: ", len(ffq.Exchange(root).read().read_all().to_pandas()), "rows")


if __name__ == "__main__":
    main()
