"""ICReq and what may come before, instead of and after it (TCP 1.0, 3.2 and 3.6.2.2)."""

from __future__ import annotations

from nvme_tcp import commands as nvme
from nvme_tcp import pdu
from nvme_tcp.connection import RawConnection

from ..probing import Site, probe, variants


def answer_of_handshake(connection: RawConnection, wait_s: float) -> str:
    """ "ok" with CPDA, granted digests and MAXH2CDATA, or an ending."""
    icresp = connection.initialized(wait_s)
    maxh2cdata = icresp.u32(12)
    assert icresp.plen == 128 and icresp.u16(8) == 0 and icresp.pdo == 0, icresp
    assert maxh2cdata >= 4096 and maxh2cdata % 4 == 0, maxh2cdata
    return f"ok cpda={icresp.header[10]} digests={icresp.header[11]}"


@variants(
    "ref",
    [
        ("plain", {}, "ok cpda=0 digests=0", ""),
        ("both digests", {"digests": 3}, "ok cpda=0 digests=3", ""),
        ("header digest", {"digests": 1}, "ok cpda=0 digests=1", ""),
        ("data digest", {"digests": 2}, "ok cpda=0 digests=2", ""),
        ("MAXR2T at most", {"maxr2t": 0xFFFFFFFF}, "ok cpda=0 digests=0", ""),
        ("PFV 1", {"pfv": 1}, "term 01/8", "fin"),
        ("HPDA 1", {"hpda": 1}, "ok cpda=0", "fin"),
        ("HPDA 31", {"hpda": 31}, "ok cpda=0", "fin"),
        ("HPDA 32", {"hpda": 32}, "term 01/a", "fin"),
        ("PLEN 136", {"plen": 136}, "term 01/4", "fin"),
        ("PLEN 0", {"plen": 0}, "term 01/4", "fin"),
        ("HLEN 64", {"hlen": 64}, "term 01/2", "fin"),
    ],
)
def icreq(site: Site, fields: dict[str, int]) -> str:
    """An ICReq with these fields."""
    with site.raw() as connection:
        connection.send(pdu.icreq(**fields))
        return answer_of_handshake(connection, site.silence_s)


@variants(
    "ref",
    [
        ("command", 0x04, "term 02", "fin"),
        ("H2CData", 0x06, "term 02", "fin"),
        ("unknown type", 0x0B, "term 01/0 | term 02", "fin"),
        ("ICResp", 0x01, "term 01/0 | term 02", "fin"),
        ("C2HData", 0x07, "term 01/0 | term 02", "fin"),
        ("H2CTermReq", 0x02, "fin", "fin"),
    ],
)
def first_pdu_is_no_icreq(site: Site, kind: int) -> str:
    """Another PDU where an ICReq belongs."""
    with site.raw() as connection:
        if kind == pdu.PduType.H2C_TERM:
            connection.send(pdu.h2c_term(1, 0, bytes(8)))
        else:
            # 128 bytes whatever the type, because nvmet reads that many before it looks.
            length = pdu.HEADER_LENGTHS.get(kind, 24)  # type: ignore[call-overload]
            connection.send(pdu.build(kind, bytes(length - 8)) + bytes(128 - length))
        return connection.expect_closed(site.silence_s)


@probe("A2", right="term 02", nvmet="fin")
def second_icreq(site: Site) -> str:
    """ICReq again after the ICResp."""
    with site.raw() as connection:
        connection.initialize()
        connection.send(pdu.icreq())
        return connection.expect_closed(site.silence_s)


@probe("A2", right="term 02", nvmet="fin")
def second_icreq_with_digests(site: Site) -> str:
    """ICReq again, digests in force: the digest's four bytes must not be read past the header."""
    with site.raw() as connection:
        connection.initialize(digests=3)
        connection.send(pdu.icreq(digests=3) + bytes(4))
        return connection.expect_closed(site.silence_s)


@probe("A5", right="ok", nvmet="ok")
def icreq_and_connect_in_one_segment(site: Site) -> str:
    """Nothing that follows an ICReq at once is lost."""
    with site.raw() as connection:
        entry = nvme.with_cid(nvme.connect(qid=0, sqsize=31), 7)
        capsule = pdu.command(entry, nvme.connect_data(site.nqn))
        connection.send(pdu.icreq() + capsule)
        connection.initialized(site.silence_s)
        response = connection.expect(pdu.PduType.RESPONSE, site.silence_s)
        return nvme.parse_completion(response.header[8:24]).code


@variants("A8", [(f"{size} bytes", size, "fin | term", "silence") for size in (1, 8, 64, 127)])
def part_of_icreq_and_silence(site: Site, size: int) -> str:
    """The target does not wait for the rest for ever."""
    with site.raw() as connection:
        connection.send(pdu.icreq()[:size])
        return connection.expect_closed(site.silence_s)


@probe("A8", right="fin | term", nvmet="silence")
def connection_without_a_word(site: Site) -> str:
    """A connection that says nothing is closed too."""
    with site.raw() as connection:
        return connection.expect_closed(site.silence_s)


@probe("A8", right="fin | term", nvmet="silence")
def handshake_and_silence(site: Site) -> str:
    """ICReq done, no Connect."""
    with site.raw() as connection:
        connection.initialize()
        return connection.expect_closed(site.silence_s)


@variants(
    "B43",
    [
        ("FES 6", (6, b"\0" * 72, None), "fin", "fin"),
        ("FES FFFF", (0xFFFF, b"\0" * 72, None), "fin | term 01/8", "fin"),
        ("PLEN 24", (1, b"", None), "fin | term 01/4", "fin"),
        ("PLEN 152", (1, b"\0" * 128, None), "fin", "fin"),
        ("PLEN 153", (1, b"\0" * 129, None), "fin | term 01/4", "fin"),
        ("PLEN FFFFFFFF", (1, b"\0" * 8, 0xFFFFFFFF), "fin | term 01/4", "fin"),
    ],
)
def h2c_term_req(site: Site, fields: tuple[int, bytes, int | None]) -> str:
    """The host ends the connection, in good or bad form: it is over either way."""
    fes, header, plen = fields
    with site.pair(1) as controller:
        connection = controller.io[0].connection
        connection.send(pdu.h2c_term(fes, 0, header, plen=plen))
        return connection.expect_closed(site.silence_s)


@variants("A4", [(f"HPDA {hpda}", hpda, "ok", "fin") for hpda in (1, 3, 7, 31)])
def host_alignment_is_kept(site: Site, hpda: int) -> str:
    """C2HData's PDO is a multiple of (HPDA + 1) dwords, the smallest that fits."""
    for digests in (0, 3):
        with site.pair(1, hpda=hpda, digests=digests) as controller:
            queue = controller.io[0]
            block = controller.block_size()
            cid = queue.submit(nvme.block_command(nvme.READ, 0, 1), expected=block)
            received = queue.pump()
            unit = (hpda + 1) * 4
            end = 24 + (4 if digests & 1 else 0)
            assert received.pdo == -(-end // unit) * unit, (received.pdo, hpda, digests)
            assert queue.wait(cid).is_ok
    return "ok"
