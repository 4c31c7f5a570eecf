"""Parts of a run's result that pages, reports and comparisons read: their names and types.

A record may come from anywhere. An invalid part, such as a certificate, is refused when the record is read.
User functions can't return parts of these names (see `workloads.function_results`), except lists of numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field, ValidationError, model_validator

Finite = Annotated[float, Field(allow_inf_nan=False)]
Bound = Annotated[float, Field(ge=0, le=1e300)]
_Number = Finite | Literal["nan", "inf", "-inf"] | None
_Quartiles = tuple[Bound, Bound, Bound]


class _Certificate(BaseModel):
    sentence: str
    bound: list[Bound | None]
    of_largest: list[Bound | None] | None = None
    """Bounds relative to the largest value; None in records of older versions."""
    shares: list[Finite | None] | None = None


class _Cell(BaseModel):
    count: Annotated[int, Field(ge=0)]
    bandwidth: _Quartiles


class _Bandwidth(BaseModel):
    workers: list[str]
    matrix: list[list[_Cell | None]]
    n_messages: Annotated[int, Field(ge=0)]
    overall: _Quartiles | None
    sentence: str
    transport: str

    @model_validator(mode="after")
    def _is_square(self) -> _Bandwidth:
        n = len(self.workers)
        if len(self.matrix) != n or any(len(row) != n for row in self.matrix):
            raise ValueError(f"the matrix is not of {n} × {n} workers")
        return self


class _Scatter(BaseModel):
    samples: list[str]
    scores: Annotated[list[list[Finite]], Field(min_length=1)]
    label: str | None
    labels: list[str] | None

    @model_validator(mode="after")
    def _is_one_table(self) -> _Scatter:
        columns: list[list[Any]] = [*self.scores, *([] if self.labels is None else [self.labels])]
        if any(len(each) != len(self.samples) for each in columns):
            raise ValueError(f"not all columns have {len(self.samples)} samples")
        if (self.label is None) != (self.labels is None):
            raise ValueError("labels have no name, or a name has no labels")
        return self


class _Parts(BaseModel):
    """Parts of a result that are read by name; it may have others."""

    certificate: _Certificate | None = None
    singular_values: list[_Number] = []
    explained_variance: list[_Number] = []
    explained_variance_ratio: list[_Number] = []
    variance_fraction: list[_Number] = []
    separated: list[bool | _Number] = []
    bandwidth: _Bandwidth | None = None
    scatter: _Scatter | None = None

    @model_validator(mode="after")
    def _belong_together(self) -> _Parts:
        if self.certificate is not None:
            n = len(self.certificate.bound)
            lists = {
                "singular_values": self.singular_values,
                "explained_variance": self.explained_variance,
                "explained_variance_ratio": self.explained_variance_ratio,
                "separated": self.separated,
                "of_largest": self.certificate.of_largest,
                "shares": self.certificate.shares,
            }
            for name, found in lists.items():
                if found and len(found) != n:
                    raise ValueError(f"{name} has {len(found)} values, and the certificate is of {n}")
                if name != "separated" and any(isinstance(each, str) for each in found or ()):
                    raise ValueError(f"{name} has values that are no numbers")
        return self


def _checked(result: dict[str, Any]) -> dict[str, Any]:
    try:
        _Parts.model_validate(result)
    except ValidationError as err:
        first = err.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")) from None
    return result


Result = Annotated[dict[str, Any], AfterValidator(_checked)]
"""Result of a run, as JSON. Its parts of these names have these forms."""


def most_off(result: Mapping[str, Any]) -> float | None:
    """Return the largest error of singular values, relative to the largest, by their certificate; None without one."""
    certificate = result.get("certificate")
    if not certificate:
        return None
    bounds = certificate.get("of_largest") or certificate["bound"]
    return max((each for each in bounds if each is not None), default=0.0)
