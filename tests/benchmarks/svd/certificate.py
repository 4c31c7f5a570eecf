"""Frequency with which the certificate accepts an interval without the true value, over the tests' spectra."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

SEEDS = 20
TOL = 1e-3


def intervals(seeds: int, threads: int) -> dict[str, Any]:
    """Return counts over all cases and seeds."""
    from tests.test_certificate import CASES

    given = [(case, seed) for case in CASES for seed in range(seeds)]
    with ProcessPoolExecutor(threads, mp_context=get_context("spawn")) as pool:
        found = list(pool.map(_one, given, chunksize=seeds))
    return {
        "cases": len(CASES),
        "seeds": seeds,
        "tol": TOL,
        "runs": len(found),
        "accepted": sum(accepted for accepted, _ in found),
        "accepted and wrong": sum(accepted and wrong for accepted, wrong in found),
        "wrong": sum(wrong for _, wrong in found),
        "which": [f"{case}, seed {seed}" for (case, seed), (_, wrong) in zip(given, found, strict=True) if wrong],
    }


def _one(given: tuple[str, int]) -> tuple[bool, bool]:
    """Return whether it was accepted, and whether it was wrong."""
    from tests.test_certificate import CASES, found, holds, reached

    case, seed = given
    options = {"center": 1} if case == "genotypes" else {}
    _, certificate, error, true = found(CASES[case](seed), seed, TOL, **options)
    accepted = certificate.status != "not reached"
    wrong = not holds(certificate, error, true) or (accepted and not reached(certificate, error, true))
    return accepted, wrong


def sentence(found: dict[str, Any]) -> str:
    """Return the counts as a sentence."""
    return (
        f"**Certificate**: {found['accepted']} of {found['runs']} runs ({found['cases']} cases × {found['seeds']} "
        f"seeds, tol={found['tol']}) were accepted, {found['accepted and wrong']} of them wrong; "
        f"{found['wrong']} bounds of all runs were below the true error."
    )
