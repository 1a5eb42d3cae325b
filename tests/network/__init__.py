"""Hosts and a target in network namespaces, with cables that can be pulled."""
