"""Mappings compiled to closures. Functions that compile raise `MappingError` for a declaration that cannot be used."""
