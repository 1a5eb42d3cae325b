"""The target: control plane, subsystems, admin commands, CLI."""
