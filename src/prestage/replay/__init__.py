"""The target in simulation: real traces on a virtual clock, by the same C parts and the same model.

Whatever knows both sides (target and host_client) may stand here; nobody but the command line
knows this package.
"""
