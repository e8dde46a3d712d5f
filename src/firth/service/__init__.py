"""HTTP: one server for models of every family, and a client."""
