"""URLs of targets: what is understood, and what a wrong one says."""

from __future__ import annotations

import pytest

from prestage.host_client.address import Address, parse_target, parse_url
from prestage.host_client.errors import InvalidRequest

NQN = "nqn.2026-11.org.example:disk"


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        (f"nvme+tcp://127.0.0.1:4421/{NQN}", "127.0.0.1", 4421),
        (f"nvme+tcp://target.example/{NQN}", "target.example", 4420),
        (f"nvme+tcp://[::1]:4421/{NQN}", "::1", 4421),
        (f"nvme+tcp://[fe80::1]/{NQN}", "fe80::1", 4420),
    ],
)
def test_a_url_names_a_subsystem_at_an_address(url: str, host: str, port: int) -> None:
    assert parse_url(url) == Address(host, port, NQN)
    assert parse_url(str(parse_url(url))) == parse_url(url)


def test_a_name_in_a_url_may_be_escaped() -> None:
    assert parse_url("nvme+tcp://a/nqn.2026-11.org%3Ax").nqn == "nqn.2026-11.org:x"


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:4420",
        f"http://127.0.0.1/{NQN}",
        f"nvme+tcp:///{NQN}",
        f"nvme+tcp://a:0/{NQN}",
        f"nvme+tcp://a:99999/{NQN}",
        f"nvme+tcp://a:x/{NQN}",
        f"nvme+tcp://[::1/{NQN}",
        "nvme+tcp://a:4420",
        "nvme+tcp://a:4420/disk",
        f"nvme+tcp://a/{NQN}?x=1",
        f"nvme+tcp://a/nqn.2026-11.org:{'x' * 223}",
    ],
)
def test_a_wrong_url_says_what_was_found_and_expected(url: str) -> None:
    with pytest.raises(InvalidRequest, match=r"found .*expected") as caught:
        parse_url(url)
    assert caught.value.where == "url"


def test_a_short_address_takes_the_name_from_beside_it() -> None:
    assert parse_target("127.0.0.1:4421", nqn=NQN) == Address("127.0.0.1", 4421, NQN)
    assert parse_target("[::1]:4421", nqn=NQN) == Address("::1", 4421, NQN)
    assert parse_target(f"nvme+tcp://a/{NQN}", nqn=None).port == 4420
