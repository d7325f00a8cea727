"""Random tables with extreme values and odd names, and random filters and aggregates over them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

# For each type, SQL expressions of extreme values and of two ordinary values.
VALUES: dict[str, list[str]] = {
    "boolean": ["true", "false"],
    "tinyint": ["-128Y", "127Y", "0Y", "5Y"],
    "smallint": ["-32768S", "32767S", "0S", "5S"],
    "int": ["-2147483648", "2147483647", "0", "-1", "5"],
    "bigint": ["-9223372036854775808L", "9223372036854775807L", "0L", "2147483648L", "5L"],
    "float": [
        *(f"FLOAT('{v}')" for v in ("NaN", "Infinity", "-Infinity", "-0.0", "0.0", "1.4E-45")),
        *("FLOAT('0.1')", "FLOAT('3.4028235E38')"),
    ],
    "double": [
        *(f"DOUBLE('{v}')" for v in ("NaN", "Infinity", "-Infinity", "-0.0", "0.0", "4.9E-324")),
        *("DOUBLE('0.1')", "DOUBLE('-1.7976931348623157E308')"),
    ],
    "decimal(9,2)": [f"CAST('{v}' AS DECIMAL(9,2))" for v in ("-9999999.99", "0", "5.5", "0.01")],
    "decimal(38,0)": [
        f"CAST('{v}' AS DECIMAL(38,0))" for v in ("9" * 38, "-" + "9" * 38, "0", "5")
    ],
    "decimal(38,18)": [
        f"CAST('{v}' AS DECIMAL(38,18))"
        for v in ("9" * 20 + "." + "9" * 18, "-0.000000000000000001", "0", "5.5")
    ],
    "string": [
        *(
            "''",
            "' '",
            "'a'",
            "'B'",
            "'é'",
            "'日本語'",
            "'😀'",
            r"'\u0000'",
            r"'\uFFFD'",
            "'a\\'`\"'",
        ),
        *(f"CAST(X'{v}' AS STRING)" for v in ("FF", "C3", "EDA080", "61FF", "F09F98")),
    ],
    "binary": ["X''", "X'00'", "X'FF'", "X'61FF'", "X'7F'"],
    "date": [
        *(f"DATE'{v}'" for v in ("-5000-01-01", "0001-01-01", "9999-12-31", "+99999-01-01")),
        *(f"DATE'1582-10-{v:02}'" for v in (4, 5, 9, 14, 15, 16)),
        *("DATE'1500-03-01'", "DATE'1900-01-01'", "DATE'1970-01-01'", "DATE'2024-02-29'"),
    ],
    "timestamp": [
        *("TIMESTAMP_MICROS(-9223372036854775808)", "TIMESTAMP_MICROS(9223372036854775807)"),
        *(f"TIMESTAMP'1582-10-{v:02} 12:30:00'" for v in (4, 5, 9, 14, 15)),
        *("TIMESTAMP'0001-01-01 00:00:00'", "TIMESTAMP'9999-12-31 23:59:59.999999'"),
        *("TIMESTAMP'1883-11-18 12:00:00'", "TIMESTAMP'1899-12-31 23:59:59'"),
        *("TIMESTAMP'2024-11-03 05:30:00Z'", "TIMESTAMP'2024-11-03 06:30:00Z'"),
        *("TIMESTAMP'2024-03-31 01:00:00Z'", "TIMESTAMP'1970-01-01 00:00:00.000001Z'"),
    ],
    "timestamp_ntz": [
        *(f"TIMESTAMP_NTZ'1582-10-{v:02} 12:30:00'" for v in (4, 5, 14, 15)),
        *("TIMESTAMP_NTZ'0001-01-01 00:00:00'", "TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'"),
        *("TIMESTAMP_NTZ'+294247-01-10 04:00:54.775807'", "TIMESTAMP_NTZ'2024-03-31 02:30:00'"),
    ],
    "time(6)": ["TIME'00:00:00'", "TIME'23:59:59.999999'", "TIME'12:00:00'"],
    "interval day to second": [
        "INTERVAL '106751991 04:00:54.775807' DAY TO SECOND",
        "INTERVAL '-106751991 04:00:54.775808' DAY TO SECOND",
        *("INTERVAL '0 00:00:00' DAY TO SECOND", "INTERVAL '1 00:00:00.000001' DAY TO SECOND"),
    ],
    "struct<a:int,`b.c`:string>": [
        *("NAMED_STRUCT('a', 5, 'b.c', 'x')", "NAMED_STRUCT('a', NULL, 'b.c', '')"),
        "NAMED_STRUCT('a', -2147483648, 'b.c', CAST(X'FF' AS STRING))",
    ],
    "array<date>": ["ARRAY()", "ARRAY(NULL, DATE'1582-10-10')", "ARRAY(DATE'2024-01-01')"],
    "map<string,int>": ["MAP()", "MAP('a', 1, '', NULL)"],
}
# Literals of other types that a column is compared with; Spark casts the column or the literal.
RELATED: dict[str, list[str]] = {
    "tinyint": ["128", "-129L", "5.0D"],
    "smallint": ["32768", "5L"],
    "int": ["2147483648L", "-2147483649L", "5.0D", "5.5BD"],
    "float": ["0.1D", "1.0E300D", "5"],
    "date": ["TIMESTAMP'1582-10-10 00:00:00'", "TIMESTAMP'2024-02-29 00:00:01'"],
}
NAMES = [
    *("k", "K", "v", "a.b", "a`b", "it's", 'say "x"', "two words", "日本", " ", " k", "\\", "%s"),
    *("k + 1", "count(1)", "1", "min(k)", "NULL", "ABS(k)", "*", "k AS v", "{k}", "a\nb"),
    *(".k", ".", ".k.min"),
]
OF_K = [(f"{of}({what})", "int") for of in ("MIN", "MAX") for what in ("1", "k + 1", "ABS(k)", "k")]
OF_LITERALS = [
    (f"COUNT({what})", "bigint") for what in ("1", "DISTINCT 1", "DISTINCT 'k'", "DISTINCT NULL")
]
ORDERED = [kind for kind in VALUES if not kind.startswith("map")]
EDGY = ["date", "timestamp", "string", "double", "timestamp_ntz"]
KEYS = [kind for kind in ORDERED if kind.partition("<")[0] not in ("struct", "array")]


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


@dataclass(frozen=True)
class Column:
    name: str
    kind: str

    @property
    def sql(self) -> str:
        return quoted(self.name)


class RandomTable:
    """Columns, rows and write options, all made from one seed.

    Every table has a column `k` of small integers, because some names look like expressions of it.
    """

    def __init__(self, seed: int) -> None:
        self.random = pick = random.Random(seed)
        edgy = pick.sample(EDGY, pick.randint(1, 2))
        kinds = edgy + pick.sample(sorted(set(VALUES) - set(edgy)), pick.randint(1, 3))
        names = ["s" if kind.startswith("struct") else "" for kind in kinds]
        others = pick.sample([name for name in NAMES if name not in ("k", "s")], len(kinds))
        named = [name or other for name, other in zip(names, others, strict=True)]
        self.columns = [Column(n, k) for n, k in zip(named, kinds, strict=True)]
        if "s" in names:
            self.columns.append(Column("s.a", "int"))
        self.columns.append(Column("k", "int"))
        # Each column has few values, so that filters match rows.
        self.values = {
            c: pick.sample(VALUES[c.kind], min(7, len(VALUES[c.kind]))) for c in self.columns
        }
        self.values[self.columns[-1]] = ["-5", "0", "5", "7"]
        self.keys = self._keys(edgy)

    def _keys(self, edgy: list[str]) -> list[Column]:
        # Options separate names by commas and strip spaces around them.
        fit = [c for c in self.columns if c.kind in KEYS and c.name.strip() == c.name]
        best = [c for c in fit if c.kind in edgy]
        first = self.random.choice(best if best and self.random.random() < 0.7 else fit)
        second = self.random.choice([c for c in fit if c != first] or [first])
        return [first] if second == first or self.random.random() < 0.7 else [first, second]

    def rows(self) -> str:
        """Return the rows as SQL, with a column `id` that numbers them."""
        rows = [
            f"({number}L, {', '.join(self._value(c) for c in self.columns)})"
            for number in range(self.random.choice([1, 12, 40, 40]))
        ]
        columns = ", ".join(
            f"CAST(c{i} AS {c.kind}) AS {c.sql}" for i, c in enumerate(self.columns)
        )
        names = ", ".join(f"c{i}" for i in range(len(self.columns)))
        return f"SELECT id, {columns} FROM VALUES {', '.join(rows)} AS t(id, {names})"

    def _value(self, column: Column) -> str:
        return "NULL" if self.random.random() < 0.15 else self.random.choice(self.values[column])

    def options(self) -> dict[str, Any]:
        pick = self.random
        statistics = pick.choice(["all", "all", "auto", "none"])
        chosen = {
            "keys": ",".join(key.name for key in self.keys),
            "partitions": pick.choice([1, 3, 16, 16]),
            "statistics": statistics,
            "layout": pick.choice(["parts", "packed"]),
        }
        return {**chosen, **({"sortBy": self.keys[0].name} if pick.random() < 0.3 else {})}

    def filters(self, count: int) -> list[str]:
        return [self._filter(self.random.choice([0, 0, 1, 2])) for _ in range(count)]

    def _filter(self, depth: int) -> str:
        if depth:
            left, right = self._filter(depth - 1), self._filter(depth - 1)
            joined = self.random.choice(["({}) AND ({})", "({}) OR ({})", "NOT (({}) AND ({}))"])
            return joined.format(left, right)
        column = self.random.choice([*self.columns, *self.keys, *self.keys])
        if column.kind.startswith("map"):
            return f"{column.sql}['a'] = 1"
        if column.kind.startswith("struct") and self.random.random() < 0.5:
            return f"{column.sql}.a <= 5"
        return self._leaf(column)

    def _leaf(self, column: Column) -> str:
        pick, name = self.random, column.sql
        literals = self.values[column]
        if pick.random() < 0.2:
            literals = RELATED.get(column.kind, literals)
        op = pick.choice(["=", "=", "<=>", "<", "<=", ">", ">=", "!="])
        return pick.choice(
            [
                f"{name} {op} {pick.choice(literals)}",
                f"{name} {op} {pick.choice(literals)}",
                f"{pick.choice(literals)} {op} {name}",
                f"{name} IN ({', '.join(pick.choices(literals, k=pick.choice([1, 3, 14])))})",
                f"{name} IN ({pick.choice(literals)}, NULL)",
                f"{name} NOT IN ({pick.choice(literals)}, {pick.choice(literals)})",
                f"{name} BETWEEN {pick.choice(literals)} AND {pick.choice(literals)}",
                f"{name} IS NULL",
                f"{name} IS NOT NULL",
            ]
        )

    def aggregates(self, count: int) -> list[str]:
        """Return queries over `{table}`, each with one column of text."""
        return [self._aggregate() for _ in range(count)]

    def _aggregate(self) -> str:
        pick = self.random
        asked = [self._function() for _ in range(pick.choice([1, 1, 2, 3]))]
        where = f" WHERE {self._filter(0)}" if pick.random() < 0.2 else ""
        grouped = [c for c in self.columns if c.kind in ORDERED] if pick.random() < 0.3 else []
        if not grouped:
            return f"SELECT {as_text(asked)} FROM {{table}}{where}"
        by = pick.sample(grouped, min(len(grouped), pick.choice([1, 1, 2])))
        shown = as_text([*((c.sql, c.kind) for c in by), *asked])
        return f"SELECT {shown} FROM {{table}}{where} GROUP BY {', '.join(c.sql for c in by)}"

    def _function(self) -> tuple[str, str]:
        """Return an aggregate and its type."""
        pick = self.random
        if pick.random() < 0.25:
            return pick.choice([*OF_K, *OF_LITERALS])
        column = pick.choice(self.columns)
        name, kind = column.sql, column.kind
        functions = [("COUNT(*)", "bigint"), (f"COUNT({name})", "bigint")]
        if kind.startswith("struct"):
            functions += [(f"MIN({name}.a)", "int"), (f"MAX({name}.`b.c`)", "string")]
        if kind in ORDERED:
            functions += [(f"MIN({name})", kind), (f"MAX({name})", kind)] * 2
            functions += [(f"COUNT(DISTINCT {name})", "bigint")]
        if kind.endswith("int"):
            functions += [(f"SUM(CAST({name} AS DECIMAL(38,0)))", "decimal(38,0)")]
        return pick.choice(functions)


def as_text(values: list[tuple[str, str]]) -> str:
    """Return SQL that concatenates the values to a text which differs for different values."""
    return "CONCAT_WS('|', " + ", ".join(f"COALESCE({_text(*v)}, 'null')" for v in values) + ")"


def _text(value: str, kind: str) -> str:
    if kind in ("string", "binary"):
        return f"HEX(CAST({value} AS BINARY))"
    if kind in ("float", "double"):
        # 0.0 and -0.0 are equal, so an aggregate may return either.
        return f"IF({value} = 0, '0', CAST({value} AS STRING))"
    if kind == "timestamp":
        return f"CAST(UNIX_MICROS({value}) AS STRING)"
    if kind == "date":
        return f"CAST(UNIX_DATE({value}) AS STRING)"
    if kind.startswith("struct"):
        return f"CONCAT(CAST({value}.a AS STRING), HEX(CAST({value}.`b.c` AS BINARY)))"
    return f"CAST({value} AS STRING)"
