"""Forecasts of a run's duration and memory, from measurements of the hardware and earlier runs."""
