"""Bokeh figures of events, defined once for the Lab tab, the notebook and the saved report."""
