"""SVD and PCA of Dask arrays with bounds on their error. Imports NumPy, CuPy and Dask, and no higher layer.

>>> from workbench.linalg import svd, svd_compressed, pca

What an estimator has found ends in an underscore, as scikit-learn has it: `PCA.certificate_`. The parts of a result
don't: `SVD.certificate`, and `singular_values` of `workbench.genotypes.pca`.

Pin BLAS to one thread per Dask thread (`OPENBLAS_NUM_THREADS=1`): Dask's threads already fill the cores.
"""

from __future__ import annotations

from workbench.linalg.certificate import AccuracyWarning, Certificate
from workbench.linalg.compressed import SVD, svd_compressed
from workbench.linalg.pca import PCA, pca
from workbench.linalg.tall import svd

__all__ = ["PCA", "SVD", "AccuracyWarning", "Certificate", "pca", "svd", "svd_compressed"]
