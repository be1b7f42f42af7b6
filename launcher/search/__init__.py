"""The parallel strategy of a job, found: legal layouts judged by the rules, sized by the estimate, ranked by time."""
