"""Files and folders here and behind URLs: where they are, and what their formats say of the numbers in them."""
