"""Handlers on executors: leased and settled beside the driver, run where the cores are."""
