"""Sizes, times and counts: one style, which never rounds up into a unit that isn't there."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from dask.utils import parse_bytes

from workbench import formats

PAGE = Path(__file__).parents[1] / "labext/lib/figures/formats.js"
"""The page's formats as built for the extension."""

SIZES = sorted(
    {round(2**power * factor) for power in range(58) for factor in (1, 1.0004, 1.005, 1.25, 1.7, 1.95, 1.999)}
    | {edge + off for unit in (2**10, 2**20, 2**30) for edge in (999 * unit, 1000 * unit) for off in (-unit // 2, 0, 9)}
    | set(range(1100))
)
SECONDS = sorted(
    {10**power * factor for power in range(-6, 7) for factor in (1, 1.5, 2.345, 5.994, 5.9996, 9.994, 9.9951)}
    | {edge + off for edge in (1, 60, 3600, 86400, 172800) for off in (-0.51, -0.05, -0.0004, 0, 0.3, 29.9, 31)}
    | {0.0}
)
IN_SECONDS = {"µs": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600, "d": 86400}


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1023, "0.999 kiB"),
        (2**20 - 1, "1 MiB"),
        (512 * 2**20, "512 MiB"),
        (1000 * 2**20, "0.977 GiB"),
        (2**31, "2 GiB"),
        (15_160_000_000, "14.1 GiB"),
        (2**60, "1024 PiB"),
    ],
)
def test_a_size_has_three_digits_and_no_zeros_that_say_nothing(n_bytes: int, text: str) -> None:
    assert formats.size(n_bytes) == text


def test_dask_reads_a_size_as_what_it_was_within_three_digits() -> None:
    for n_bytes in SIZES:
        # Dask itself cuts off the fraction of a byte.
        assert abs(parse_bytes(formats.size(n_bytes)) - n_bytes) <= 0.005 * n_bytes + 1


def test_no_size_has_more_than_three_digits_or_reaches_the_next_unit() -> None:
    for n_bytes in SIZES:
        number = formats.size(n_bytes).split()[0]
        assert len(re.sub(r"^0\.|\.", "", number)) <= 3, number
        assert float(number) < 1000


def test_a_larger_size_never_reads_as_a_smaller_one() -> None:
    told = [parse_bytes(formats.size(n_bytes)) for n_bytes in SIZES]
    assert told == sorted(told)


def test_a_rate_is_a_size_in_a_second() -> None:
    assert formats.rate(1.5 * 2**30) == "1.5 GiB/s"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (-3, "0 s"),
        (45e-6, "45 µs"),
        (0.25, "250 ms"),
        (0.9996, "1 s"),
        (1.3, "1.3 s"),
        (12, "12 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min"),
        (235, "3 min 55 s"),
        (239.7, "4 min"),
        (3599.6, "1 h"),
        (3900, "1 h 5 min"),
        (7199, "2 h"),
        (86399, "1 d"),
        (97 * 3600, "4 d 1 h"),
    ],
)
def test_a_duration_is_told_in_the_units_that_suit_it(seconds: float, text: str) -> None:
    assert formats.duration(seconds) == text


def test_no_duration_has_more_than_three_digits_or_reaches_the_next_unit() -> None:
    most = {"µs": 1000, "ms": 1000, "s": 60, "min": 60, "h": 24, "d": 1000}
    for seconds in SECONDS:
        for number, unit in parts(formats.duration(seconds)):
            assert len(number.replace(".", "").lstrip("0")) <= 3, number
            assert float(number) < most[unit]


def test_a_longer_duration_never_reads_as_a_shorter_one() -> None:
    told = [in_seconds(formats.duration(seconds)) for seconds in SECONDS]
    assert all(before <= after * (1 + 1e-9) for before, after in itertools.pairwise(told))
    # One step of two units, or three digits.
    assert all(one == pytest.approx(other, rel=0.03) for one, other in zip(told, SECONDS, strict=True))


def parts(text: str) -> list[tuple[str, str]]:
    words = text.split()
    return list(zip(words[::2], words[1::2], strict=True))


def in_seconds(text: str) -> float:
    return sum(float(number) * IN_SECONDS[unit] for number, unit in parts(text))


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (3.14, 4.49, "3.1 to 4.5 s"),
        (49.9, 130, "50 s to 2.2 min"),
        (9540, 20000, "2.6 to 5.6 h"),
        (12, 12.3, "about 12 s"),
        (0.12, 0.45, "120 to 450 ms"),
        (0.9996, 80, "1 to 80 s"),
        (1e4, 3e5, "2.8 h to 3.5 d"),
        (0, 2, "0 ms to 2 s"),
    ],
)
def test_a_span_has_two_digits_and_one_unit_where_both_ends_share_it(low: float, high: float, text: str) -> None:
    assert formats.span(low, high) == text


def test_a_moment_is_told_by_how_long_ago_it_was() -> None:
    assert [formats.ago(1e9, 1e9 + later) for later in (-5, 59, 60, 7199)] == [
        "just now",
        "just now",
        "1 min ago",
        "1 h ago",
    ]
    assert re.fullmatch(r"2001-09-0\d", formats.ago(1e9, 1.1e9))


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (1, "worker", "1 worker"),
        (0, "worker", "0 workers"),
        (2, "process", "2 processes"),
        (1.5, "CPU", "1.5 CPUs"),
        (2.0, "CPU", "2 CPUs"),
        (40_000, "task", "40,000 tasks"),
        (1_234_567, "", "1,234,567"),
    ],
)
def test_a_count_agrees_with_its_noun_and_has_commas_between_thousands(number: float, noun: str, text: str) -> None:
    assert formats.count(number, noun) == text


@pytest.mark.skipif(
    shutil.which("node") is None or not PAGE.exists(), reason="Node runs the page's own functions here."
)
def test_a_page_that_draws_a_record_by_itself_tells_sizes_and_times_as_python_does() -> None:
    ours = PAGE.read_text(encoding="utf-8")
    # None in the middle between two others: there the languages round differently.
    sizes = [n_bytes | 1 for n_bytes in SIZES if n_bytes < 2**50]
    micros = [10 * round(1e5 * seconds) + 3 for seconds in SECONDS if 0 <= seconds < 86000]
    code = f"{ours}\nconsole.log(JSON.stringify([{json.dumps(sizes)}.map(n => size(n)), {micros}.map(duration)]));"
    told = json.loads(
        subprocess.run(["node", "--input-type=module", "-e", code], capture_output=True, check=True, timeout=60).stdout
    )
    assert told == [[formats.size(n) for n in sizes], [formats.duration(us / 1e6) for us in micros]]


def test_two_sizes_that_differ_are_told_apart() -> None:
    assert formats.distinct_sizes(13 * 2**30 + 2**25, 13 * 2**30) == ("13.03 GiB", "13 GiB")
    assert formats.distinct_sizes(2**30, 2**20) == ("1 GiB", "1 MiB")
    assert formats.distinct_sizes(2**40 + 1, 2**40) == ("1.000000000001 TiB", "1 TiB")


PLAIN = {
    "flags": [True, False, None],
    "numbers": [1, -2.5, 1e300, float("inf")],
    "empty": [[], {}, "", ()],
    "one": (1,),
    'quote"s': 'it\'s "so" \\ \n\r\t',
    "beyond \U0001f600": "\U00010348 \u202e \ud83d \x00",
    2: {"deep": [{"deeper": (True, "\U0001f600")}]},
}


def test_a_literal_is_python_for_the_same_value() -> None:
    assert eval(formats.literal(PLAIN)) == PLAIN
    assert formats.literal(["a", True, None, {"b": 1}]) == '["a", True, None, {"b": 1}]'


def test_a_long_path_keeps_its_beginning_and_its_end() -> None:
    path = "/home/ada/projects/a-long-name-of-a-project/results/second/stations.npy"
    shown = formats.shorten_middle(path)
    assert len(shown) == 44
    assert shown.startswith("/home/ada")
    assert shown.endswith("/stations.npy")
    assert formats.shorten_middle("stations.npy") == "stations.npy"
