"""Events as Bokeh figures: one definition for the Lab tab, the notebook and the saved report."""
