"""Routes for operators."""
