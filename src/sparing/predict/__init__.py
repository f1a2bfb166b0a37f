"""Answers to files of any size: one row out for each row in, in order, resumable."""
