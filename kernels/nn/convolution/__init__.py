"""Patches of images and max pooling: what a convolution is made of besides a matrix product."""
