"""Checks of `spark.ffq.*` settings."""

from __future__ import annotations

from health_scene import GOOD

from ffq_spark.health.checks import check
from ffq_spark.health.facts import Facts


def test_a_misspelt_setting_is_found_with_its_likely_name_and_without_its_value() -> None:
    (finding,) = check(Facts({**GOOD, "spark.ffq.storge.secret": "hidden"}, "4.3.0", "17.0.9"))
    assert finding.setting == "spark.ffq.storge.secret" and "hidden" not in repr(finding)
    (finding,) = check(Facts({**GOOD, "spark.ffq.verfy": "counts"}, "4.3.0", "17.0.9"))
    assert (finding.wanted, finding.remedy) == ("spark.ffq.verify", "use spark.ffq.verify")
