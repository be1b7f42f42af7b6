"""What Megatron-LM's validation leaves of the arguments, and what training reads of them then."""
