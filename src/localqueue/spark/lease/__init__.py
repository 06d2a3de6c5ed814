"""A queue consumed by a stream: a batch leases, and what the sink has is acknowledged."""
