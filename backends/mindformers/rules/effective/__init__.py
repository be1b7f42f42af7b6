"""What MindFormers' trainer makes of the keys of a file, and what training reads of them then."""
