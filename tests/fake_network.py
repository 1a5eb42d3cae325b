"""The interfaces of a machine that a test makes up."""

from __future__ import annotations

from prestage.target.network import Addresses, InterfaceAddress, Network


class FakeNetwork(Network):
    """A machine whose interfaces have the addresses that a test says."""

    def __init__(self, *addresses: tuple[str, str]) -> None:
        super().__init__()
        self.starts = 0
        self.warning: str | None = None
        self.given = addresses

    async def start(self) -> str | None:
        self.starts += 1
        if self.warning is None and not self.addresses.is_known:
            self.say(*self.given)
        return self.warning

    def say(self, *addresses: tuple[str, str]) -> None:
        """The addresses, with their interfaces, are these from now on."""
        self._take(Addresses(tuple(InterfaceAddress(*one) for one in addresses), is_known=True))
