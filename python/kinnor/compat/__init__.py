"""Kinnor under the names of other libraries."""
