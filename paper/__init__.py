"""Experiments: what is measured, the table it is kept in, and the figure that is drawn from the table alone."""
