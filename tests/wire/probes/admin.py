"""Properties, Identify, log pages and controller state (Base 2.0, 3.1.3, 5.16, 5.17)."""

from __future__ import annotations

from nvme_tcp import commands as nvme

from ..probing import Site, probe, turns, variants


@variants(
    "ref",
    [
        ("Get 60h", nvme.property_get(0x60), "0/02 dnr", ""),
        ("Get CAP as 4 bytes", nvme.property_get(nvme.CAP, 4), "0/02 dnr", ""),
        ("Get CC as 8 bytes", nvme.property_get(nvme.CC, 8), "0/02 dnr", "0/02"),
        ("Get INTMS", nvme.property_get(nvme.INTMS), "0/02 dnr", ""),
        ("Get FFFFFFFCh", nvme.property_get(0xFFFFFFFC), "0/02 dnr", ""),
        ("Get 15h", nvme.property_get(0x15), "0/02 dnr", ""),
        ("Set VS", nvme.property_set(nvme.VS, 1), "0/02 dnr", ""),
        ("Set CSTS", nvme.property_set(nvme.CSTS, 1), "0/02 dnr", ""),
        ("Set CC as 8 bytes", nvme.property_set(nvme.CC, nvme.CC_BASE, 8), "0/02 dnr", ""),
        ("Set NSSR", nvme.property_set(nvme.NSSR, 0x4E564D65), "0/02 dnr", ""),
        ("Get CAP", nvme.property_get(nvme.CAP, 8), "ok", ""),
        ("Get VS", nvme.property_get(nvme.VS), "ok", ""),
    ],
)
def fabrics_property(site: Site, entry: bytes) -> str:
    """Only the properties of a fabrics controller, at their sizes."""
    with site.admin() as controller:
        answer = controller.admin.execute(entry, site.silence_s)
        return " ".join(answer.text().split()[:2]) if not answer.is_ok else "ok"


@variants(
    "ref",
    [
        (
            "fctype 7Eh",
            bytes([0x7F, 0x40, 0, 0, 0x7E]) + bytes(19) + nvme.NO_DATA + bytes(24),
            "0/01 dnr | 0/02 dnr",
            "",
        ),
        ("opcode C0h", nvme.sqe(0xC0), "0/01 dnr", ""),
        ("opcode 05h", nvme.sqe(0x05), "0/01 dnr", ""),
        ("opcode FFh", nvme.sqe(0xFF), "0/01 dnr", ""),
        ("FUSE 1", nvme.sqe(nvme.KEEP_ALIVE, flags=0x41), "0/02 dnr", ""),
        ("PSDT 0", nvme.sqe(nvme.KEEP_ALIVE, flags=0x00), "0/02 dnr", "0/02 | ok"),
        ("Identify CNS FFh", nvme.identify(0xFF), "0/02 dnr", ""),
        ("Identify 00 of nsid 9", nvme.identify(0, 9), "0/0b dnr | ok", "0/0b | ok"),
        ("Identify 00 of nsid 0", nvme.identify(0, 0), "0/0b dnr", "ok | 0/0b"),
        ("Identify 02 from FFFFFFFF", nvme.identify(2, 0xFFFFFFFF), "0/0b dnr", "0/0b | ok"),
        ("Identify 03 of nsid 9", nvme.identify(3, 9), "0/0b dnr", ""),
        ("Log 99h", nvme.get_log(0x99, 4096), "1/09 dnr", "0/02"),
        ("Abort of nothing", nvme.abort(1, 99), "ok dw0=1", ""),
        ("Abort on no queue", nvme.abort(99, 99), "ok dw0=1 | 0/02", "ok"),
        ("Abort of itself", nvme.abort(0, 4099), "ok dw0=1", ""),
    ],
)
def admin_command(site: Site, entry: bytes) -> str:
    """Admin commands that are wrong, or have nothing to do."""
    with site.pair(0) as controller:
        expected = 4096 if entry[0] in (nvme.IDENTIFY, nvme.GET_LOG) else 0
        return controller.admin.execute(entry, site.silence_s, expected=expected).text()


@variants(
    "ref",
    [
        ("SMART at 2", (2, 512, 2), "0/02 dnr", "ok"),
        ("SMART at 4096", (2, 512, 4096), "0/02 dnr | ok", "ok"),
        ("SMART", (2, 512, 0), "ok", ""),
        ("errors", (1, 64, 0), "ok", ""),
        ("firmware", (3, 512, 0), "ok", ""),
        ("changed namespaces", (4, 4096, 0), "ok", ""),
        ("effects", (5, 4096, 0), "ok", ""),
    ],
)
def log_page(site: Site, how: tuple[int, int, int]) -> str:
    """Log pages, whole and from an offset."""
    lid, size, offset = how
    with site.pair(0) as controller:
        entry = nvme.get_log(lid, size, offset=offset, nsid=0xFFFFFFFF)
        answer = controller.admin.execute(entry, site.silence_s, expected=size)
        assert len(answer.data) == (size if answer.is_ok else 0)
        return answer.text()


@probe("ref", right="ok")
def ana_log_in_pieces(site: Site) -> str:
    """Hosts read 4 KiB pieces up to what NANAGRPID and MNAN allow, also beyond what is used."""
    with site.pair(0) as controller:
        identity = controller.identify(1)
        if not identity[76] & 8:
            return "no ANA"
        groups, namespaces = (int.from_bytes(identity[at : at + 4], "little") for at in (348, 540))
        total = 16 + 32 * groups + 4 * namespaces
        for offset in range(0, total, 4096):
            size = min(4096, total - offset)
            controller.get_log(0x0C, size, offset=offset, nsid=0xFFFFFFFF, rae=True)
        return "ok"


@variants(
    "ref",
    [
        ("log at 1 MiB", nvme.get_log(0x70, 1024, offset=1 << 20), "0/02 dnr", ""),
        ("log at 2", nvme.get_log(0x70, 1024, offset=2), "0/02 dnr", ""),
        ("Identify 02", nvme.identify(2), "0/02 dnr", ""),
        ("Set Features 07", nvme.set_features(7, 0x10001), "0/02 dnr", ""),
        ("SMART log", nvme.get_log(2, 1024), "0/02 dnr | 1/09", "0/02 | 0/0f"),
        ("Keep Alive without KATO", nvme.sqe(nvme.KEEP_ALIVE), "ok", ""),
        ("Identify 01", nvme.identify(1), "ok", ""),
    ],
)
def discovery_command(site: Site, entry: bytes) -> str:
    """What a discovery controller has, and has not (NVMe-oF 1.1, 5; Base 2.0, 3.1.2.3)."""
    with site.pair(0, nqn=nvme.DISCOVERY_NQN) as controller:
        expected = {nvme.IDENTIFY: 4096, nvme.GET_LOG: 1024}.get(entry[0], 0)
        return controller.admin.execute(entry, site.silence_s, expected=expected).text()


@variants(
    "ref",
    [
        ("MPS 1", nvme.CC_BASE | 1 << 7, "fatal | 0/02", "fatal"),
        ("CSS 7", nvme.CC_BASE | 7 << 4, "fatal | 0/02 | ok", "fatal | ok"),
        ("IOSQES 0", nvme.CC_BASE & ~0xF0000, "fatal | 0/02", "fatal"),
        ("IOCQES 0", nvme.CC_BASE & ~0xF00000, "fatal | 0/02", "fatal"),
        ("AMS 7", nvme.CC_BASE | 7 << 11, "fatal | 0/02", "fatal"),
    ],
)
def controller_configuration(site: Site, value: int) -> str:
    """CC values that the controller does not support end in CSTS.CFS, not in RDY."""
    with site.admin() as controller:
        answer = controller.admin.execute(nvme.property_set(nvme.CC, value | 1))
        if not answer.is_ok:
            return answer.text()
        csts = controller.admin.property_get(nvme.CSTS)
        return "fatal" if csts & 2 and not csts & 1 else f"ok csts={csts:x}"


@probe("C46", right="ok shst=0 rdy=1", nvmet="ok")
def enable_again_after_shutdown(site: Site) -> str:
    """SHN = 1, then EN 0 and 1: the shutdown status is gone and the controller is ready."""
    with site.pair(0) as controller:
        controller.set_cc(nvme.CC_BASE | 1 | 1 << 14)
        controller.wait_csts(0xC, 8)
        controller.set_cc(nvme.CC_BASE)
        controller.wait_csts(1, 0)
        controller.set_cc(nvme.CC_BASE | 1)
        csts = controller.wait_csts(1, 1)
        return f"ok shst={csts >> 2 & 3} rdy={csts & 1}"


@probe("C46", right="0/0c", nvmet="0/0c")
def io_after_shutdown(site: Site) -> str:
    """CSTS.SHST is 10b, and I/O commands end with Command Sequence Error."""
    with site.pair(1) as controller:
        block = controller.block_size()
        controller.set_cc(nvme.CC_BASE | 1 | 1 << 14)
        controller.wait_csts(0xC, 8)
        entry = nvme.block_command(nvme.READ, 0, 1)
        return controller.io[0].execute(entry, site.silence_s, expected=block).code


@probe("C47", right="ok", nvmet="ok")
def shutdown_under_io(site: Site) -> str:
    """SHST becomes 10b only after the I/O in flight was answered."""
    with site.pair(1) as controller:
        queue = controller.io[0]
        block = controller.block_size()
        cids = [
            queue.submit(
                nvme.block_command(nvme.WRITE, index * 128, 65536 // block),
                data=bytes(65536),
                in_capsule=False,
            )
            for index in range(16)
        ]
        # Answer the R2Ts that come while the shutdown is under way: they are its commands' data.
        controller.admin.submit(nvme.property_set(nvme.CC, nvme.CC_BASE | 1 | 1 << 14))
        for cid in cids:
            answer = queue.wait(cid)
            assert answer.code in ("ok", "0/0c"), answer.text()
        controller.wait_csts(0xC, 8)
        return "ok"


@probe("D76", right="ok", nvmet="ok")
def dsm_limits(site: Site) -> str:
    """DMRL, DMRSL and DMSL (CNS 06): all zero or none."""
    with site.pair(0) as controller:
        data = controller.identify(6)
        limits = (
            data[3],
            int.from_bytes(data[4:8], "little"),
            int.from_bytes(data[8:16], "little"),
        )
        return "ok" if all(limits) or not any(limits) else f"partly {limits}"


@probe("C53", right="ok")
def keep_alive_and_disable(site: Site) -> str:
    """Keep Alive and CC.EN = 0 back to back, many times over."""
    rounds = 10 if site.is_reference else turns("PRESTAGE_TEST_ROUNDS", 100)
    for _ in range(rounds):
        with site.pair(0, kato=5000) as controller:
            queue = controller.admin
            first = queue.submit(nvme.sqe(nvme.KEEP_ALIVE))
            second = queue.submit(nvme.property_set(nvme.CC, nvme.CC_BASE))
            third = queue.submit(nvme.sqe(nvme.KEEP_ALIVE))
            assert queue.wait(first).is_ok and queue.wait(second).is_ok
            assert queue.wait(third).code in ("ok", "0/0c")
    return "ok"
