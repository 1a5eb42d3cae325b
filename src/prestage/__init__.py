"""prestage: an NVMe-over-TCP storage target that anticipates."""

__version__ = "0.1.0"
