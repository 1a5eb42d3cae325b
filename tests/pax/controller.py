"""A controller of the target in memory: admin commands, the feature, asynchronous events."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING

from prestage.ext import layout
from prestage.ext.conform import nvme
from prestage.ext.conform.host import Command, Completion
from prestage.ext.conform.host import Tenant as Who

if TYPE_CHECKING:
    from pax.target import FakeTarget


class Controller:
    """As a host sees it: a `prestage.ext.conform.Host`."""

    def __init__(self, target: FakeTarget, who: Who) -> None:
        self.target = target
        self.who = who
        self._reset()

    def _reset(self) -> None:
        self.feature = 0
        self.is_masked = False
        self.request: asyncio.Future[Completion] | None = None

    async def reconnect(self) -> None:
        await self.close()
        self.target.controllers.append(self)
        self._reset()

    async def close(self) -> None:
        self.target.controllers.remove(self)
        if self.request is not None and not self.request.done():
            self.request.set_exception(ConnectionError("the association has ended"))
        self.target.disconnected(self)

    async def io(self, command: Command) -> Completion:
        done = self.target.io(self.who, command)
        return await done if inspect.isawaitable(done) else done

    # ---- events ----

    @property
    def has_events(self) -> bool:
        return bool(self.target.tenants[self.who].events)

    def report_event(self) -> None:
        wants = self.feature & 1 and not self.is_masked
        if wants and self.request is not None and not self.request.done() and self.has_events:
            lid = self.target.capability().event_log
            self.is_masked = True
            self.request.set_result(Completion(dw0=layout.AER_TYPE | lid << 16))

    # ---- admin commands ----

    async def admin(self, command: Command) -> Completion:
        if command.opcode == nvme.Admin.ASYNC_EVENT:
            self.request = asyncio.get_running_loop().create_future()
            self.report_event()
            return await self.request
        handlers = {
            nvme.Admin.IDENTIFY: self.identify,
            nvme.Admin.GET_LOG_PAGE: self.get_log,
            nvme.Admin.SET_FEATURES: self.set_feature,
            nvme.Admin.GET_FEATURES: self.get_feature,
        }
        return handlers[nvme.Admin(command.opcode)](command)

    def identify(self, command: Command) -> Completion:
        target, cns = self.target, command.cdw10 & 0xFF
        match cns:
            case 0x00:
                data = target.identify_namespace(command.nsid)
            case 0x01:
                data = target.identify_controller()
            case 0x02:
                numbers = target.identify_active()
                data = b"".join(nsid.to_bytes(4, "little") for nsid in numbers)
            case 0x03:
                data = target.descriptors(command.nsid)
            case 0x17:
                data = target.uuid_list()
            case _:
                return Completion(nvme.INVALID_FIELD | nvme.DNR)
        return Completion(data=data.ljust(4096, b"\0"))

    def get_log(self, command: Command) -> Completion:
        data = self.target.log_page(self, command)
        if data is None:
            return Completion(nvme.INVALID_LOG_PAGE | nvme.DNR)
        is_event_log = command.cdw10 & 0xFF == self.target.capability().event_log
        if is_event_log and not command.cdw10 & nvme.RETAIN_EVENT:
            self.is_masked = False
        return Completion(data=data[: command.data_in_bytes])

    def _is_feature(self, command: Command) -> bool:
        number = self.target.capability().feature
        return bool(number) and command.cdw10 & 0xFF == number and command.cdw14 & 0x7F == 1

    def set_feature(self, command: Command) -> Completion:
        if not self._is_feature(command):
            return Completion(nvme.INVALID_FIELD | nvme.DNR)
        self.feature = command.cdw11 & 1
        self.feature_was_set()
        return Completion()

    def feature_was_set(self) -> None:
        self.report_event()

    def get_feature(self, command: Command) -> Completion:
        if not self._is_feature(command):
            return Completion(nvme.INVALID_FIELD | nvme.DNR)
        return Completion(dw0=self.feature)
