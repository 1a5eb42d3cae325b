"""The control socket: JSON-RPC 2.0 on a Unix socket, framed and named as SPDK does it."""
