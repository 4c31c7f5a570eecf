"""Products of a tile in pieces are those of NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.linalg import products


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8"])
@pytest.mark.parametrize(("rows", "columns", "width"), [(1, 1, 1), (64, 3663, 20), (7, 129, 3), (64, 5001, 48)])
def test_products_in_pieces_are_those_of_the_whole(rows: int, columns: int, width: int, dtype: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows + 3, columns)).astype(dtype)
    q, y = rng.standard_normal((columns, width)).astype(dtype), rng.standard_normal((rows, width)).astype(dtype)
    room = products.room_for(x, width)
    # A tile may be lower than the room is for, and lie the other way.
    for tile in (x[:rows], np.asfortranarray(x[:rows])):
        precision = {"rtol": 0, "atol": 2e-3 if dtype != "f8" else 1e-11}
        made = products.right(tile, q, np.empty((rows, width), dtype), room)
        np.testing.assert_allclose(made, tile @ q, **precision)
        made = products.left(y, tile, np.empty((width, columns), dtype))
        np.testing.assert_allclose(made, y.T @ tile, **precision)


def test_tiles_of_many_columns_are_cut_into_pieces() -> None:
    assert len(products.room_for(np.empty((products.ROWS, 5000), "f4"), 20)) > 4
    assert products.room_for(np.empty((products.ROWS, 100), "f4"), 20) is None
