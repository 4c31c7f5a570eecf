"""scikit-learn's tests of its PCA, asked of ours."""

from __future__ import annotations

from typing import Any

import pytest
import sklearn.decomposition

from tests.conformance import keep, name_what_does_not_apply
from workbench import linalg

# The solver is the same to us, so of tests that are asked for each one is enough. Of 216 cases of sparse input four are
# asked: the largest scale of three, and of scipy's four containers one by rows and one by columns, one old and one new.
IN_TIME = (
    r"(?!.*(arpack|randomized|covariance_eigh|auto|csr_array|csc_matrix)|test_pca_sparse\[).*"
    r"|test_pca_sparse\[\d+-100-arpack-(csr_matrix|csc_array)-(1|10)-0.3.*"
)


_SOLVERS = "There are no solvers to choose from, and none of them has limits of its own."
_NO_MODEL = "There is no probabilistic model: no covariance, precision or likelihood."
DOES_NOT_APPLY = {
    r"test_pca_validation\[.*": _SOLVERS,
    r"test_sparse_pca_solver_error\[.*": _SOLVERS,
    r"test_pca\[.*": f"{_NO_MODEL} What else it checks is in test_linalg_pca.py.",
    r"test_pca_(score|zero_noise_variance).*": _NO_MODEL,
    r"test_(pca_dim|n_components_mle|mle_|fit_mle).*": "There is no n_components='mle'.",
}


class PCA(linalg.PCA):
    """Ours, made with scikit-learn's parameters: those that say how to compute have no effect. It is to be exact."""

    def __init__(
        self,
        n_components: Any = None,
        *,
        copy: bool = True,
        whiten: bool = False,
        svd_solver: str = "auto",
        iterated_power: Any = "auto",
        n_oversamples: int = 10,
        power_iteration_normalizer: str = "auto",
        random_state: Any = None,
    ) -> None:
        super().__init__(n_components, whiten=whiten, random_state=random_state, tol=1e-12)
        self.copy, self.svd_solver, self.iterated_power = copy, svd_solver, iterated_power
        self.n_oversamples, self.power_iteration_normalizer = n_oversamples, power_iteration_normalizer


sklearn.decomposition.PCA = PCA


def pytest_collection_modifyitems(config: pytest.Config, items: list[Any]) -> None:
    keep(config, items, IN_TIME)
    name_what_does_not_apply(items, DOES_NOT_APPLY)
