"""The records that decide: queries, outcomes, steps, streams, leases."""
