"""Native arguments without a canonical field: what each does."""
