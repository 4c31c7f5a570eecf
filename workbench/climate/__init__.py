"""Fields of climate, and series of images: empirical orthogonal functions of what is left without mean and season."""
