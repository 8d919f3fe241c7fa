"""What `stepwell new` writes: files that run as they are, with names to be replaced."""
