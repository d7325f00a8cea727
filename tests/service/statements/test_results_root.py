"""A temporary results root goes with the service; a configured one stays."""

from __future__ import annotations

from pathlib import Path

from ffq_spark.service.statements.results_root import ResultsRoot


def test_a_configured_root_is_not_removed(tmp_path: Path) -> None:
    results = ResultsRoot(str(tmp_path))
    results.remove()
    assert results.root == str(tmp_path) and tmp_path.exists()


def test_a_temporary_root_is_removed_however_often_it_is_asked() -> None:
    results = ResultsRoot()
    place = Path(results.root)
    (place / "rows").write_text("")
    for _ in range(2):
        results.remove()
        assert not place.exists()
