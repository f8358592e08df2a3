"""Frames to video files, and the videos of a run."""
