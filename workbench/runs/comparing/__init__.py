"""What the same work costs on several kinds of hardware: measured in turn, answers checked, put in a table."""
