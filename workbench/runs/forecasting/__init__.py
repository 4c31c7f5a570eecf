"""How long a run takes and whether it fits, from what the hardware was measured to do and from the runs before it."""
