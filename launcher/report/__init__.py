"""What people see: findings, dry runs, progress."""
