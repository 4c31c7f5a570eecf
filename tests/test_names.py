from __future__ import annotations

import pytest

from workbench.clusters.names import new_name
from workbench.errors import BadInputError
from workbench.named_choices import check_name, is_name


def test_a_new_name_is_two_readable_words() -> None:
    first, second = new_name().split("-")
    assert first.isalpha()
    assert second.isalpha()


def test_every_new_name_may_be_a_name() -> None:
    assert all(is_name(new_name()) for _ in range(200))


def test_a_new_name_is_none_of_those_taken() -> None:
    class AllPairs:
        def __contains__(self, name: object) -> bool:
            return str(name).count("-") == 1

    assert new_name(AllPairs()).endswith("-2")


@pytest.mark.parametrize("name", ["calm-otter", "a", "run2", "my_cluster", "x" * 40])
def test_a_users_own_name_is_kept(name: str) -> None:
    assert check_name(name, "cluster", "calm-otter") == name


@pytest.mark.parametrize("name", ["", "Calm", "2x", "a b", "../x", "a/b", "x" * 41, "calm\n", ".lock", "ä"])
def test_a_name_that_can_not_be_a_folder_is_refused_with_what_is_allowed(name: str) -> None:
    with pytest.raises(BadInputError, match="Use a lower-case letter"):
        check_name(name, "cluster", "calm-otter")
