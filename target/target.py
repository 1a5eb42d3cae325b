"""The target: what runs, and the operations on it."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from prestage.target.checks import check_limits, check_nqn, check_subsystem
from prestage.target.connections import Connections
from prestage.target.controller import Controller
from prestage.target.datapath import MAX_SUBSYSTEMS, DataPath
from prestage.target.descriptors import shortage
from prestage.target.discovery import Discovery, Port
from prestage.target.draining import StopReport, close_volume, drain, flush_volume, remove, unmap
from prestage.target.errors import (
    AlreadyExists,
    Exhausted,
    Invalid,
    MediumError,
    NotFound,
    TargetError,
)
from prestage.target.extension import data_path_capability
from prestage.target.hint_report import hint_report
from prestage.target.identity import Identity, lock_directory
from prestage.target.listener import Address, Listener
from prestage.target.network import Network, is_wildcard
from prestage.target.report import reached_by, report
from prestage.target.runtime import Runtime
from prestage.target.settings import (
    DISCOVERY_NQN,
    ListenerSettings,
    NamespaceSettings,
    SubsystemSettings,
    TargetSettings,
)
from prestage.target.subsystem import Kind, Namespace, Subsystem
from prestage.target.supervisor import COMMAND
from prestage.target.volumes import open_namespace, resize_volume

log = logging.getLogger("prestage.target")


class Target:
    """An NVMe/TCP target. `async with Target(settings) as target:` starts and stops it.

    Operations are done one after another; one that fails changes nothing and raises TargetError.
    Without `data_path` the one in C is used, without `network` the machine's.
    """

    def __init__(
        self,
        settings: TargetSettings,
        data_path: DataPath | None = None,
        network: Network | None = None,
        prestager_command: Sequence[str] = COMMAND,
    ) -> None:
        self.settings = settings
        self._given_data_path = data_path
        self._given_network = network
        self._prestager_command = prestager_command
        self._lock = asyncio.Lock()
        self._listeners: dict[Address, Listener] = {}
        self._runtime: Runtime | None = None
        self._identity: Identity | None = None
        self._connections: Connections | None = None
        self._last_port = 0
        self._lock_fd = -1
        """Keeps other targets out of the state directory."""

    # ---- life ----

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start everything that the settings name. Raises TargetError with nothing left running."""
        async with self._lock:
            if self._runtime is not None:
                raise AlreadyExists("the target runs already")
            check_limits(self.settings)
            directory = Path(self.settings.state_directory)
            self._lock_fd = await asyncio.to_thread(lock_directory, directory)
            try:
                self._identity = await Identity.load(directory)
                data_path = self._given_data_path
                if data_path is None:
                    # Imported here, so that everything else runs without the C module.
                    from prestage.target.core import CoreDataPath

                    data_path = CoreDataPath(self.settings)
                network = self._given_network or Network()
                self._runtime = Runtime(
                    data_path, self.settings, self._prestager_command, network=network
                )
                network.changed = self._network_changed
                await self._start(self._runtime, self._identity)
            except BaseException:
                if self._runtime is not None:
                    await self._shut(5.0)
                self._unlock()
                raise

    async def _start(self, runtime: Runtime, identity: Identity) -> None:
        identity.started()
        runtime.power_cycles = identity.state.starts
        runtime.unsafe_shutdowns = identity.state.unsafe_stops
        runtime.own_warnings.extend(identity.warnings)
        too_few = shortage(self.settings.limits.connections)
        if too_few is not None:
            runtime.own_warnings.append(too_few)
        runtime.discovery = Discovery(runtime)
        runtime.subsystems[DISCOVERY_NQN] = Subsystem(
            DISCOVERY_NQN, Kind.DISCOVERY, serial=identity.serial(DISCOVERY_NQN)
        )
        self._connections = Connections(runtime)
        runtime.data_path.start(self._connections.receive)
        runtime.data_path.set_capability(data_path_capability(self.settings))
        runtime.tenants.start()
        for subsystem in self.settings.subsystems:
            await self._add_subsystem(subsystem)
        await runtime.prestager.start()
        await identity.save()
        if runtime.placement.needs_interfaces:
            await self._learn_addresses()
        for listener in self.settings.listeners:
            await self._add_listener(listener)

    async def stop(self, timeout_s: float | None = None) -> StopReport:
        """Drain, flush, and stop within about `timeout_s` (default: limits.stop_s).

        Hosts' commands that were not answered yet are theirs to send again. What could not be
        flushed in time is in the report, and the report is then not clean.
        """
        async with self._lock:
            if self._runtime is None:
                return StopReport(clean=True)
            return await self._shut(self.settings.limits.stop_s if timeout_s is None else timeout_s)

    def hurry(self) -> None:
        """Let a stop under way not wait for the prestager."""
        if self._runtime is not None:
            self._runtime.prestager.hurry()

    async def _shut(self, timeout_s: float) -> StopReport:
        runtime, identity = self._running, self._identity
        for listener in self._listeners.values():
            listener.close()
        self._listeners.clear()
        runtime.prestager.begin_stop()
        stopped = await drain(runtime, timeout_s)
        await runtime.prestager.stop()
        await runtime.network.stop()
        runtime.data_path.stop()
        self._runtime = self._connections = None
        if identity is not None:
            identity.stopped(clean=stopped.clean)
            await self._save_last(identity)
        self._unlock()
        return stopped

    def _unlock(self) -> None:
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
        self._lock_fd = -1

    async def _save_last(self, identity: Identity) -> None:
        """What hosts wrote is safe already: a state directory that is lost does not undo that."""
        try:
            await identity.save()
        except TargetError as error:
            log.warning("the stop was not noted, the next start will count it as unsafe: %s", error)

    @property
    def _running(self) -> Runtime:
        if self._runtime is None:
            raise Invalid("the target is not running", expected="start() first")
        return self._runtime

    # ---- what there is ----

    @property
    def is_running(self) -> bool:
        """True between start and stop."""
        return self._runtime is not None

    @property
    def listeners(self) -> list[Address]:
        """Bound addresses, with the ports that were found for port 0."""
        return list(self._listeners)

    def reached_by(self, address: str) -> list[str]:
        """Return the addresses by which hosts reach a listener: a wildcard stands for many.

        Empty for a wildcard when the interfaces are not known.
        """
        return reached_by(self._running, address)

    @property
    def subsystems(self) -> list[Subsystem]:
        """The NVM subsystems."""
        everything = self._runtime.subsystems.values() if self._runtime else ()
        return [subsystem for subsystem in everything if not subsystem.is_discovery]

    @property
    def warnings(self) -> list[str]:
        """What somebody should know, in sentences."""
        return self._runtime.warnings if self._runtime else []

    def subsystem(self, nqn: str) -> Subsystem:
        """Return an NVM subsystem. Raises NotFound."""
        subsystem = self._running.subsystems.get(nqn)
        if subsystem is None or subsystem.is_discovery:
            there = ", ".join(s.nqn for s in self.subsystems) or "none"
            raise NotFound("no such subsystem", nqn, there)
        return subsystem

    def stats(self) -> dict[str, Any]:
        """Return all counters as plain values that JSON can hold (`prestage.target.report`)."""
        refused = self._connections.refused if self._connections else 0
        return report(self._running, self.listeners, refused)

    def hints(self, host: str | None = None) -> dict[str, Any]:
        """Return what the hints of all hosts, or of one, came to. Raises NotFound."""
        return hint_report(self._running, host)

    # ---- subsystems ----

    async def add_subsystem(self, settings: SubsystemSettings) -> None:
        """Add a subsystem with its namespaces. Raises AlreadyExists, Invalid, MediumError."""
        async with self._lock:
            await self._add_subsystem(settings)
            try:
                await self._save()
            except TargetError:
                subsystem = self._running.subsystems.pop(settings.nqn)
                await self._discard(subsystem)
                self._discovery_changed()
                raise

    async def _add_subsystem(self, settings: SubsystemSettings) -> None:
        runtime, identity = self._running, self._identity
        assert identity is not None, "a running target has loaded its identity"
        check_subsystem(settings)
        if settings.extension and not self.settings.hints.enabled:
            raise Invalid("extension is on", settings.nqn, "hints.enabled to be on as well")
        if settings.nqn in runtime.subsystems:
            raise AlreadyExists("the subsystem exists", settings.nqn)
        taken = {s.index for s in runtime.subsystems.values() if not s.is_discovery}
        index = next((n for n in range(MAX_SUBSYSTEMS) if n not in taken), None)
        if index is None:
            raise Exhausted("no more subsystems", settings.nqn, f"at most {MAX_SUBSYSTEMS}")
        serial = settings.serial or identity.serial(settings.nqn)
        subsystem = Subsystem.of(settings, serial, index)
        if subsystem.extension is not None:
            runtime.data_path.map_extension(index, subsystem.extension.nsid)
        try:
            for namespace in settings.namespaces:
                opened = await open_namespace(runtime, identity, subsystem, namespace)
                self._map(subsystem, opened)
        except BaseException:
            await self._discard(subsystem)
            raise
        runtime.subsystems[settings.nqn] = subsystem
        self._discovery_changed()

    async def _discard(self, subsystem: Subsystem) -> None:
        """Close the namespaces of a subsystem that no host has seen."""
        runtime = self._running
        for opened in list(subsystem.namespaces.values()):
            await unmap(runtime, subsystem, opened)
            await close_volume(runtime, opened, abandon=True)
        await self._unmap_extension(subsystem)

    async def _unmap_extension(self, subsystem: Subsystem) -> None:
        if subsystem.extension is not None:
            await unmap(self._running, subsystem, subsystem.extension)

    async def remove_subsystem(self, nqn: str) -> None:
        """Disconnect its hosts, flush and close its namespaces.

        Raises NotFound; MediumError with nothing changed when a namespace cannot be flushed.
        """
        async with self._lock:
            subsystem = self.subsystem(nqn)
            for namespace in subsystem.namespaces.values():
                await self._flush(subsystem, namespace)
            del self._running.subsystems[nqn]
            for controller in list(subsystem.controllers.values()):
                controller.close()
            self._discovery_changed()
            try:
                for namespace in list(subsystem.namespaces.values()):
                    await self._remove(subsystem, namespace)
            except MediumError:
                self._running.subsystems[nqn] = subsystem
                self._discovery_changed()
                raise
            await self._unmap_extension(subsystem)

    # ---- namespaces ----

    async def add_namespace(self, nqn: str, settings: NamespaceSettings) -> int:
        """Add a namespace and tell connected hosts; return its NSID."""
        async with self._lock:
            subsystem, identity = self.subsystem(nqn), self._identity
            assert identity is not None, "a running target has loaded its identity"
            namespace = await open_namespace(self._running, identity, subsystem, settings)
            try:
                # First of all: hosts must find it again by the same identifiers.
                await self._save()
                self._map(subsystem, namespace)
            except TargetError:
                await close_volume(self._running, namespace, abandon=True)
                raise
            subsystem.namespace_changed(namespace.nsid)
            return namespace.nsid

    async def remove_namespace(
        self, nqn: str, nsid: int, *, settings: NamespaceSettings | None = None
    ) -> None:
        """Flush, take a namespace away, and tell connected hosts.

        `settings` are those of the one that is meant: another may have its number when earlier
        changes are done. Raises NotFound; MediumError with nothing changed if it cannot be flushed.
        """
        async with self._lock:
            subsystem = self.subsystem(nqn)
            namespace = subsystem.namespace(nsid, settings)
            await self._flush(subsystem, namespace)
            await self._remove(subsystem, namespace)

    async def resize_namespace(
        self, nqn: str, nsid: int, size_bytes: int, *, settings: NamespaceSettings | None = None
    ) -> None:
        """Change the size and tell connected hosts; what is beyond a smaller one is lost.

        `settings`: see remove_namespace. Raises NotFound; Invalid, MediumError with it unchanged.
        """
        async with self._lock:
            subsystem = self.subsystem(nqn)
            namespace = subsystem.namespace(nsid, settings)
            where = f"{nqn} namespace {nsid}"
            try:
                await resize_volume(
                    self._running, namespace, size_bytes, self.settings.limits.stop_s, where
                )
            except MediumError as error:
                what = f"it cannot have {size_bytes} bytes: {error.what}"
                raise MediumError(what, where, number=error.number) from None
            finally:
                # Also when nobody waits for it any more.
                size = self._running.data_path.volume_limits(namespace.volume).size
                now = size - size % namespace.block_bytes
                if now != namespace.size_bytes:
                    namespace.size_bytes = now
                    subsystem.namespace_changed(nsid)

    def _map(self, subsystem: Subsystem, namespace: Namespace) -> None:
        self._running.prestager.name_volume(namespace.volume, str(namespace.uuid))
        self._running.data_path.map(subsystem.index, namespace.nsid, namespace.volume)
        subsystem.namespaces[namespace.nsid] = namespace

    async def _flush(self, subsystem: Subsystem, namespace: Namespace) -> None:
        timeout_s = self.settings.limits.stop_s
        why = await flush_volume(self._running, namespace, timeout_s)
        if why:
            where = f"{subsystem.nqn} namespace {namespace.nsid}"
            raise MediumError(f"it cannot be flushed ({why}); nothing was removed", where)

    async def _remove(self, subsystem: Subsystem, namespace: Namespace) -> None:
        """Unmap and close; when the medium takes too long, that goes on in the background."""
        runtime = self._running
        where = f"{subsystem.nqn} namespace {namespace.nsid}"
        task = asyncio.get_running_loop().create_task(remove(runtime, subsystem, namespace))
        _, pending = await asyncio.wait([task], timeout=self.settings.limits.stop_s)
        if pending:
            runtime.background.add(task)
            task.add_done_callback(runtime.background.discard)
            raise MediumError("it was removed, but its medium has not finished yet", where)
        why = task.result()
        if why:
            raise MediumError(f"it cannot be flushed ({why}); it stays", where)

    def media_control(self, nqn: str, nsid: int, kind: str, verb: str) -> None:
        """Tell a fault wrapper of a namespace's medium what to do (csrc/media.h).

        It waits for nothing, for a wrapper that holds back what an operation waits for must still
        be told to let go. Raises NotFound or MediumError.
        """
        volume = self.subsystem(nqn).namespace(nsid).volume
        self._running.data_path.volume_control(volume, kind, verb)

    # ---- listeners ----

    async def add_listener(self, settings: ListenerSettings) -> Address:
        """Listen on one more address; return it with the port that was found."""
        async with self._lock:
            return await self._add_listener(settings)

    async def _add_listener(self, settings: ListenerSettings) -> Address:
        runtime, connections = self._running, self._connections
        assert connections is not None, "a running target has its connections"
        if is_wildcard(settings.address):
            await self._learn_addresses()
        listener = Listener.open(settings, connections.accepted)
        self._listeners[listener.address] = listener
        if runtime.discovery is not None:
            self._last_port = self._last_port % 0xFFFF + 1
            runtime.discovery.ports[listener.address] = Port(self._last_port, *listener.address)
        self._discovery_changed()
        return listener.address

    async def _learn_addresses(self) -> None:
        """Ask for the addresses of the interfaces, once: few targets need them."""
        runtime = self._running
        warning = await runtime.network.start()
        if warning is not None and warning not in runtime.own_warnings:
            runtime.own_warnings.append(warning)

    def _network_changed(self) -> None:
        if self._runtime is not None:
            self._runtime.placement.forget()
            self._discovery_changed()

    async def remove_listener(self, address: str, port: int) -> None:
        """Stop listening on an address. Hosts connected through it stay connected."""
        async with self._lock:
            runtime, key = self._running, Address(address, port)
            listener = self._listeners.pop(key, None)
            if listener is None:
                there = ", ".join(str(address) for address in self._listeners) or "none"
                raise NotFound("no such listener", str(key), there)
            listener.close()
            if runtime.discovery is not None:
                runtime.discovery.ports.pop(key, None)
            self._discovery_changed()

    # ---- hosts ----

    async def allow_host(self, nqn: str, host: str) -> None:
        """Put a host on the list of a subsystem that was open to all: the list now counts."""
        async with self._lock:
            subsystem = self.subsystem(nqn)
            check_nqn(host, f"{nqn} host")
            subsystem.allow(host)
            self._enforce(subsystem)

    async def deny_host(self, nqn: str, host: str) -> None:
        """Take a host off the list and close its connections.

        Raises NotFound; Invalid when every host may connect, for then denying means nothing.
        """
        async with self._lock:
            subsystem = self.subsystem(nqn)
            if host not in subsystem.hosts:
                if subsystem.allow_any_host:
                    expected = "allow_any_host off and a list of hosts"
                    raise Invalid("any host may connect", f"{nqn} host {host}", expected)
                there = ", ".join(sorted(subsystem.hosts)) or "none"
                raise NotFound("the host is not on the list", f"{nqn} host {host}", there)
            subsystem.hosts.remove(host)
            mine = [c for c in subsystem.controllers.values() if c.host_nqn == host]
            self._enforce(subsystem, mine)

    async def set_allow_any_host(self, nqn: str, allowed: bool) -> None:
        """Open a subsystem to every host, or to those on its list alone."""
        async with self._lock:
            subsystem = self.subsystem(nqn)
            subsystem.allow_any_host = allowed
            subsystem.any_is_implied = False
            self._enforce(subsystem)

    def _enforce(self, subsystem: Subsystem, also: list[Controller] | None = None) -> None:
        for controller in {*subsystem.forbidden(), *(also or ())}:
            controller.close()
        self._discovery_changed()

    def _discovery_changed(self) -> None:
        discovery = self._running.discovery
        if discovery is not None:
            discovery.changed()

    async def _save(self) -> None:
        if self._identity is not None:
            await self._identity.save()
