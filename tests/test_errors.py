"""Every error has a stable code, shows it in its text, and can be sent between processes."""

from __future__ import annotations

import copy
import pickle
import re
from pathlib import Path

import pytest

from ffq_spark import errors
from ffq_spark.errors import ErrorClass, FfqError, Rows
from ffq_spark.options import ReadOptions, ServeOptions, WriteOptions, environment_name

ROOT = Path(__file__).parent.parent
LITERAL = re.compile(r"(?<![A-Za-z_])FFQ_[A-Z]+(?:_[A-Z]+)*")

# Users match on these: a code is never renamed and never given to another error.
CODES = {
    "AlreadyCommitted": "FFQ_ALREADY_COMMITTED",
    "AttemptExists": "FFQ_ATTEMPT_EXISTS",
    "BadCommit": "FFQ_BAD_COMMIT",
    "BadOption": "FFQ_BAD_OPTION",
    "BadRequest": "FFQ_BAD_REQUEST",
    "Canceled": "FFQ_CANCELED",
    "CommitUnknown": "FFQ_COMMIT_UNKNOWN",
    "CommittedUnconfirmed": "FFQ_COMMITTED_UNCONFIRMED",
    "Conflict": "FFQ_CONFLICT",
    "CorruptIndex": "FFQ_CORRUPT_INDEX",
    "CorruptPart": "FFQ_CORRUPT_PART",
    "CorruptRecord": "FFQ_CORRUPT_RECORD",
    "DuplicateBatch": "FFQ_DUPLICATE_BATCH",
    "ExchangeMismatch": "FFQ_EXCHANGE_MISMATCH",
    "ExchangeNotFound": "FFQ_EXCHANGE_NOT_FOUND",
    "Fenced": "FFQ_FENCED",
    "Forbidden": "FFQ_FORBIDDEN",
    "FutureFormat": "FFQ_FUTURE_FORMAT",
    "KeyColumnMissing": "FFQ_COLUMN_MISSING",
    "Lost": "FFQ_LOST",
    "Misplaced": "FFQ_MISPLACED",
    "NoAnswer": "FFQ_NO_ANSWER",
    "NoAttempts": "FFQ_NO_ATTEMPTS",
    "NoCommonVersion": "FFQ_NO_COMMON_VERSION",
    "NoOffsets": "FFQ_NO_OFFSETS",
    "NotRegistered": "FFQ_NOT_REGISTERED",
    "NotSorted": "FFQ_NOT_SORTED",
    "PartitionNotFound": "FFQ_PARTITION_NOT_FOUND",
    "QueryEnded": "FFQ_QUERY_ENDED",
    "QueryExists": "FFQ_QUERY_EXISTS",
    "QueryFailed": "FFQ_QUERY_FAILED",
    "QueryNotFound": "FFQ_QUERY_NOT_FOUND",
    "Replaced": "FFQ_REPLACED",
    "ReplayMismatch": "FFQ_REPLAY_MISMATCH",
    "StatementActive": "FFQ_STATEMENT_ACTIVE",
    "StepExpired": "FFQ_STEP_EXPIRED",
    "StepGap": "FFQ_STEP_GAP",
    "StepNotFound": "FFQ_STEP_NOT_FOUND",
    "StoreFailed": "FFQ_STORE_FAILED",
    "StoreUnsafe": "FFQ_STORE_UNSAFE",
    "StreamOwned": "FFQ_STREAM_OWNED",
    "TicketStale": "FFQ_TICKET_STALE",
    "TimedOut": "FFQ_TIMED_OUT",
    "Unauthenticated": "FFQ_UNAUTHENTICATED",
    "Unavailable": "FFQ_UNAVAILABLE",
    "UnknownOption": "FFQ_UNKNOWN_OPTION",
    "Unsupported": "FFQ_UNSUPPORTED",
    "UnsupportedType": "FFQ_UNSUPPORTED_TYPE",
}

BUILTINS = {
    ErrorClass.CONFIG: ValueError,
    ErrorClass.PLANNING: LookupError,
    ErrorClass.EXECUTION: RuntimeError,
    ErrorClass.IO: OSError,
    ErrorClass.UNSUPPORTED: NotImplementedError,
}


def leaves(kind: type[FfqError] = FfqError) -> list[type[FfqError]]:
    """Return the error classes without subclasses: only these are raised."""
    below = [leaf for child in kind.__subclasses__() for leaf in leaves(child)]
    return below or [kind]


LEAVES = sorted(
    (kind for kind in leaves() if kind.__module__ == errors.__name__), key=lambda k: k.__name__
)


def test_codes_are_stable() -> None:
    """Add new errors to the list above; never change an existing entry."""
    assert {kind.__name__: kind.code for kind in LEAVES} == CODES
    assert errors.every_error() == sorted(LEAVES, key=lambda kind: kind.code)


def sources() -> list[Path]:
    return [*(ROOT / "ffq_spark").rglob("*.py"), *(ROOT / "jars" / "src").rglob("*.scala")]


def test_every_code_in_the_sources_is_declared() -> None:
    """Names of environment variables look like codes; the options declare them."""
    kinds = (WriteOptions, ReadOptions, ServeOptions)
    variables = {environment_name(f.metadata["name"]) for kind in kinds for f in kind.declared()}
    declared = {*CODES.values(), FfqError.code, *variables}
    literals = {
        (path.relative_to(ROOT).as_posix(), literal)
        for path in sources()
        for literal in LITERAL.findall(path.read_text())
    }
    assert {code for _, code in literals} >= set(CODES.values())
    assert sorted((path, code) for path, code in literals if code not in declared) == []


def test_only_errors_behind_the_outcome_say_that_rows_may_count() -> None:
    words = {kind.__name__: kind.rows for kind in LEAVES if kind.rows is not Rows.NEVER}
    assert words == {
        "AlreadyCommitted": Rows.VISIBLE,
        "CommitUnknown": Rows.UNKNOWN,
        "CommittedUnconfirmed": Rows.PENDING,
        "DuplicateBatch": Rows.VISIBLE,
    }
    # A service may send a code that this version does not know.
    assert FfqError.rows is Rows.UNKNOWN


@pytest.mark.parametrize("kind", LEAVES, ids=lambda kind: kind.__name__)
class TestEveryError:
    def test_its_code_is_its_own(self, kind: type[FfqError]) -> None:
        assert "code" in vars(kind)
        assert kind.code.startswith("FFQ_") and kind.code == kind.code.upper()
        assert [other for other in LEAVES if other.code == kind.code] == [kind]

    def test_its_text_holds_code_message_subject_and_remedy(self, kind: type[FfqError]) -> None:
        text = str(kind("what is wrong", path="the/file", option="theOption"))
        assert text.startswith(f"[{kind.code}] what is wrong")
        assert "the/file" in text and "theOption" in text and kind.remedy in text
        assert str(kind("what is wrong")).startswith(f"[{kind.code}] what is wrong")

    def test_it_survives_pickle_and_copy(self, kind: type[FfqError]) -> None:
        for error in (kind("m"), kind("m", path="p", option="o", remedy="r")):
            for back in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
                assert type(back) is kind
                assert (back.message, back.path, back.option) == ("m", error.path, error.option)
                assert (back.remedy, str(back)) == (error.remedy, str(error))

    def test_it_is_of_one_class_and_caught_as_its_builtin(self, kind: type[FfqError]) -> None:
        assert issubclass(kind, BUILTINS[kind.error_class])
        assert sum(issubclass(kind, builtin) for builtin in BUILTINS.values()) == (
            2 if kind.error_class is ErrorClass.UNSUPPORTED else 1
        )
        with pytest.raises(FfqError):
            raise kind("m")

    def test_its_documentation_says_what_it_means(self, kind: type[FfqError]) -> None:
        assert kind.__doc__ and kind.__doc__.strip().endswith(".")

    def test_it_has_a_remedy(self, kind: type[FfqError]) -> None:
        assert kind.remedy.strip() and not kind.remedy.endswith(".")

    def test_its_own_remedy_takes_the_place_of_that_of_its_class(
        self, kind: type[FfqError]
    ) -> None:
        assert str(kind("late", remedy="Come again")) == f"[{kind.code}] late. Come again"

    def test_a_remedy_that_the_message_holds_is_not_repeated(self, kind: type[FfqError]) -> None:
        assert str(kind(f"late. {kind.remedy}")).count(kind.remedy) == 1
