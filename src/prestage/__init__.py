"""prestage: an NVMe-over-TCP storage target that anticipates."""
