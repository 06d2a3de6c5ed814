"""Stores as DataFrames: what is planned beside the driver, and the columns that tasks make."""
