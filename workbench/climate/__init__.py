"""Climate fields and series of images: empirical orthogonal functions of their anomalies."""
