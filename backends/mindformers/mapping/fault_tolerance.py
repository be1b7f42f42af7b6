"""Rows of fault tolerance."""

from launcher.mapping.rows import Row, same


def nan_check_row() -> Row:
    """Return the row of the NaN check that ends training."""
    return same("fault_tolerance.check_for_nan", "check_for_nan_in_loss_and_grad")
