"""Attributes of stored numbers: scale, sign and missing values, by CF's conventions and xarray's for Zarr.

Sources: "NetCDF Climate and Forecast (CF) Metadata Conventions" 1.11, sections 2.5 and 8.1; "NetCDF Users Guide",
attribute conventions; xarray's encoding of `_FillValue` in Zarr.
"""

from __future__ import annotations

import base64
import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.errors import BadInputError

# NetCDF's default fill values of variables in a new file, by type.
_NETCDF_FILLS = {
    "i2": -32767,
    "i4": -2147483647,
    "i8": -9223372036854775806,
    "u2": 65535,
    "u4": 4294967295,
    "u8": 18446744073709551614,
    "f4": float(np.float32(9.969209968386869e36)),
    "f8": 9.969209968386869e36,
}
ATTRIBUTES: tuple[str, ...] = ("scale_factor", "add_offset", "_Unsigned", "_FillValue", "missing_value", "valid_range")
ATTRIBUTES += ("valid_min", "valid_max")
"""Those that say what stored numbers mean."""
_OTHERS = {"scalefactor", "scale", "slope", "gain", "addoffset", "offset", "intercept", "fillvalue", "missingvalue"}
_OTHERS |= {"nodata", "nodatavalue"}
_DATES = re.compile(r"\b(since|after|from) ")


@dataclass(frozen=True)
class Stored:
    """Recipe to read stored values: first as `dtype`, then mask missing ones, then times `scale` plus `offset`."""

    dtype: np.dtype[Any]
    missing: tuple[int | float, ...] = ()
    """Stored values that stand for "not known"."""
    low: float | None = None
    high: float | None = None
    """Stored values below the first or above the second are missing, too."""
    scale: float = 1.0
    offset: float = 0.0
    remarks: tuple[str, ...] = ()
    """Messages for users."""

    @property
    def is_packed(self) -> bool:
        """True if stored numbers stand for other numbers."""
        return (self.scale, self.offset) != (1.0, 0.0)

    def numbers_of(self, block: Any) -> Any:
        """Return the values of stored numbers, NaN where missing, as `workbench.storage.reading.unpacked` does."""
        block = block.astype(block.dtype.newbyteorder("=")).view(self.dtype.newbyteorder("="))
        absent = np.isin(block, np.array(self.missing, block.dtype))
        absent |= (block < self.low) if self.low is not None else False
        absent |= (block > self.high) if self.high is not None else False
        return np.where(absent, np.nan, block * np.float64(self.scale) + self.offset)

    def recipe(self, stored: np.dtype[Any]) -> dict[str, Any] | None:
        """Return the relevant fields as JSON; None if numbers are used as stored."""
        plain: dict[str, Any] = {"dtype": self.dtype.name} if self.dtype.kind != stored.kind else {}
        plain |= {"missing": list(self.missing)} if self.missing else {}
        plain |= {name: value for name, value in (("low", self.low), ("high", self.high)) if value is not None}
        return plain | ({"scale": self.scale, "offset": self.offset} if self.is_packed else {}) or None


def stored(title: str, dtype: np.dtype[Any], attributes: Mapping[str, Any], fill: Any = None) -> Stored:
    """Interpret the attributes of an array as a recipe for its numbers.

    Parameters
    ----------
    title
        Path and name of the array, for messages.
    fill
        Fill value from outside the attributes, if it stands for "missing": in Zarr format 2 as xarray
        writes it, and in NetCDF.

    Raises
    ------
    BadInputError
        The attributes leave the meaning of the numbers open, or they are dates.
    """
    raw = {name: _plain(attributes[name]) for name in attributes}
    if isinstance(units := raw.get("units"), str) and _DATES.search(units):
        raise BadInputError(f"{title} holds dates ({units}). Expected numbers.")
    kind = _signed(title, dtype, raw)
    scale, offset = (_number(title, raw, name, start) for name, start in (("scale_factor", 1.0), ("add_offset", 0.0)))
    declared = [(name, value) for name in ("_FillValue", "missing_value") for value in _values(title, raw, name, dtype)]
    declared += [] if fill is None or "_FillValue" in raw else [("the fill value", fill)]
    missing = {code: name for name, value in declared if (code := _code(value, dtype, kind)) is not None}
    low, high, ranged = _range(title, raw, kind, scale, offset)
    recipe = Stored(kind, tuple(missing), low, high, scale, offset)
    remarks = (_unpacked(recipe, raw, dtype), _absent(missing, ranged), _left_aside(raw))
    return Stored(kind, tuple(missing), low, high, scale, offset, tuple(filter(None, remarks)))


def netcdf_default(dtype: np.dtype[Any]) -> Any:
    """Return NetCDF's default fill value for an array of this type; None for bytes, which it doesn't fill."""
    return _NETCDF_FILLS.get(dtype.str[1:])


def netcdf_fill(dtype: np.dtype[Any], fill: Any) -> Any:
    """Return `fill` if it is NetCDF's default for such an array, which its readers take as missing; else None."""
    default = netcdf_default(dtype)
    return None if default is None or fill is None or fill != default else default


def _plain(value: Any) -> Any:
    """Return an attribute as Python values: HDF5 has arrays of one element where others have a number."""
    plain = value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
    if isinstance(plain, list) and len(plain) == 1:
        plain = plain[0]
    return plain.decode(errors="replace") if isinstance(plain, bytes) else plain


def _number(title: str, attrs: Mapping[str, Any], name: str, start: float) -> float:
    value = attrs.get(name, start)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and np.isfinite(value) and (value or start == 0):
        return float(value)
    raise BadInputError(
        f"{title} has the attribute {name} {value!r}, expected a number: its values have no clear meaning. Correct it."
    )


def _values(title: str, attrs: Mapping[str, Any], name: str, dtype: np.dtype[Any]) -> list[int | float]:
    value = attrs.get(name)
    values = value if isinstance(value, list) else [] if value is None else [value]
    if name == "_FillValue" and dtype.kind == "f" and isinstance(value, str):
        values = [_of_xarray(value)]
    if all(isinstance(each, (int, float)) for each in values):
        return values
    raise BadInputError(
        f"{title} has the attribute {name} {value!r}, expected a number, so missing values are unknown. Correct it."
    )


def _of_xarray(text: str) -> float | str:
    """Return the number that xarray writes as base64 among the attributes of Zarr format 3."""
    try:
        return float(struct.unpack("<d", base64.b64decode(text, validate=True))[0])
    except (ValueError, struct.error):
        return float(text) if text in ("NaN", "Infinity", "-Infinity") else text


def _signed(title: str, dtype: np.dtype[Any], attrs: Mapping[str, Any]) -> np.dtype[Any]:
    """Return the type that `_Unsigned` means, which older NetCDF and OPeNDAP use instead of unsigned types."""
    word = str(attrs.get("_Unsigned", "")).lower()
    kind = {"true": "u", "false": "i"}.get(word)
    if kind is None and word:
        raise BadInputError(f"{title} has the attribute _Unsigned {word!r}, expected true or false. Mend it.")
    return np.dtype(dtype.str.replace("ui"[kind == "u"], kind)) if kind and dtype.kind in "iu" else dtype


def _code(value: Any, dtype: np.dtype[Any], stored_as: np.dtype[Any]) -> int | float | None:
    """Return a value as the array holds it; None where it holds no such value, or NaN, which is missing anyway."""
    if dtype.kind == "b" or not np.isfinite(value):
        return None
    if dtype.kind == "f":
        code = np.asarray(value).astype(dtype)
        return float(code) if np.isfinite(code) else None
    code = np.asarray(int(value) if value == int(value) else value)
    bits = 8 * dtype.itemsize
    if code.dtype.kind not in "iu" or not -(2 ** (bits - 1)) <= int(code) < 2**bits:
        return None
    wrapped = int(code) % 2**bits
    code_stored = wrapped - 2**bits if stored_as.kind == "i" and wrapped >= 2 ** (bits - 1) else wrapped
    # An unsigned array has no negative values, unless _Unsigned reinterprets a signed one, and vice versa.
    return code_stored if code_stored == int(code) or stored_as.kind != dtype.kind else None


def _range(
    title: str, attrs: Mapping[str, Any], stored_as: np.dtype[Any], scale: float, offset: float
) -> tuple[float | None, float | None, str]:
    """Return the least and largest stored value that counts, and the text of the attributes."""
    both = _values(title, attrs, "valid_range", stored_as)
    if both and len(both) != 2:
        raise BadInputError(f"{title} has the attribute valid_range {both}, expected two numbers. Mend it.")
    lows, highs = (
        both[:1] or _values(title, attrs, "valid_min", stored_as),
        both[1:] or _values(title, attrs, "valid_max", stored_as),
    )
    ends: dict[bool, list[float]] = {True: [], False: []}
    for values, is_low in ((lows, True), (highs, False)):
        if values and np.isfinite(values[0]):
            is_unpacked = _is_unpacked(values[0], stored_as, scale, offset)
            end = (values[0] - offset) / scale if is_unpacked else _wrapped(values[0], stored_as)
            # The least unpacked value is the largest stored one where the scale is negative.
            ends[is_low ^ (is_unpacked and scale < 0)].append(end)
    least, most = max(ends[True], default=None), min(ends[False], default=None)
    words = [f"{word} {values[0]:.12g}" for word, values in (("below", lows), ("above", highs)) if values]
    # Tolerate rounding errors of a converted limit, so that they make no stored whole number invalid.
    if stored_as.kind in "iu":
        least = None if least is None else math.ceil(least - 1e-6)
        most = None if most is None else math.floor(most + 1e-6)
    return least, most, " and ".join(words)


def _is_unpacked(limit: float, stored_as: np.dtype[Any], scale: float, offset: float) -> bool:
    """Return whether a limit applies to unpacked values: floats of packed integers do (NetCDF Users Guide)."""
    return stored_as.kind in "iu" and isinstance(limit, float) and (scale, offset) != (1.0, 0.0)


def _wrapped(limit: float, stored_as: np.dtype[Any]) -> float:
    """Return a limit in the type of the stored numbers: a negative one of unsigned numbers was written as signed."""
    return limit + 2 ** (8 * stored_as.itemsize) * (stored_as.kind == "u" and limit < 0)


def _unpacked(recipe: Stored, attrs: Mapping[str, Any], dtype: np.dtype[Any]) -> str:
    how = [f"{name} {attrs[name]:.12g}" for name in ("scale_factor", "add_offset") if name in attrs]
    how += [f"_Unsigned, as {recipe.dtype.name}"] if recipe.dtype != dtype else []
    return f"Unpacked by {' and '.join(how)}." if how and (recipe.is_packed or recipe.dtype != dtype) else ""


def _absent(missing: Mapping[int | float, str], ranged: str) -> str:
    codes = [f"{value:.12g} ({name})" for value, name in missing.items()]
    stand = f"{', '.join(codes)} stand{'s' * (len(codes) == 1)} for missing values" if codes else ""
    return (
        f"{'; '.join(filter(None, (stand, ranged and f'what is {ranged} counts as missing')))}."
        if codes or ranged
        else ""
    )


def _left_aside(attrs: Mapping[str, Any]) -> str:
    """Report attributes with other names that look like packing, whose meaning is unclear."""
    numbers = [
        f"{name} {value:.12g}"
        for name, value in attrs.items()
        if name not in ATTRIBUTES and re.sub("[^a-z]", "", name.lower()) in _OTHERS and isinstance(value, (int, float))
    ]
    return f"The attributes {', '.join(numbers)} are of no convention that is known here and were left aside." * bool(
        numbers
    )
