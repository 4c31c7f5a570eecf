"""What a person sees and asks for, once for all faces: views as HTML, and requests. No Jupyter and no Panel here."""
