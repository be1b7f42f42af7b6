"""Output for users: findings and strategy files."""
