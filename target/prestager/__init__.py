"""The prestager: a process of its own that learns what will be read, and has it brought in."""
