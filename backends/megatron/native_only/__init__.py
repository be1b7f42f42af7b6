"""Native arguments without a canonical field, and their effects."""
