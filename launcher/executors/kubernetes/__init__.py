"""The executor `kubernetes`: Kubernetes."""
