"""The shape of flashinfer's testing functions."""
