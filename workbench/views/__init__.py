"""Views as HTML, and requests, shared by Jupyter and notebooks. Imports neither Jupyter nor ipywidgets."""
