"""The words and the mathematics of the package: no files, no loops, no environments."""
