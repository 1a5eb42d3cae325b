"""Replaying traces: the target's own tier, scheduler and prestager on a virtual clock."""
