"""Rows of data from arrays, files and clusters, and the engines that run passes over them."""
