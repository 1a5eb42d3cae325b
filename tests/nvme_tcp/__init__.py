"""A small NVMe/TCP initiator for tests, written from the specification and nothing else.

It shares no code with the target or with the host client of this repository: what the suite says
about a target is an outside judgement. Sockets are blocking with a deadline on every wait.
"""
