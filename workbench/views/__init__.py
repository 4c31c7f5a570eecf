"""Views as HTML, and requests, shared by Jupyter, Panel and notebooks. Imports neither Jupyter nor Panel."""
