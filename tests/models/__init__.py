"""Tests of the model seam, its stream records and the scripted model."""
