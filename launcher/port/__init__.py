"""Ports a job written for one backend to another: translated, passed through, or dropped with the reason."""
