"""Campaigns of state machines: one hypothesis profile, and a lower limit for the transitions."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, run_state_machine_as_test


class CountedMachine(RuleBasedStateMachine):
    """A state machine that counts the transitions of all its runs."""

    transitions = 0

    @invariant()
    def count_transitions(self) -> None:
        type(self).transitions += 1


def campaign(machine: type[CountedMachine], *, examples: int, steps: int, transitions: int) -> None:
    """Run a machine, and fail if its runs had fewer transitions than expected."""
    counted = type("Campaign", (machine,), {"transitions": 0})
    profile = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(counted, settings=profile)
    print(f"{counted.transitions} transitions")
    assert counted.transitions >= transitions
