"""Helpers for tests of the contract: random records, a target in memory."""
