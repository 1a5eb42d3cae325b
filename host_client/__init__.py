"""What a host uses: the initiator and the hint interface."""
