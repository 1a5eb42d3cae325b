"""The open contract between hosts and targets."""
