"""The examples, run as a reader runs them."""
