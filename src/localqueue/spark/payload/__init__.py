"""Values of messages as columns of a given schema."""
