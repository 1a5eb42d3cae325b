"""The target judged over TCP, from outside."""
