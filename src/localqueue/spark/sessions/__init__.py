"""Sessions that are set up: settings, Java, logs without secrets, the package where it runs."""
