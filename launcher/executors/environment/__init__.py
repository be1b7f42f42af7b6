"""The executor `environment`: the environment of a platform's job."""
