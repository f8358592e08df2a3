"""What a trained model is worth: scores, open-loop prediction, velocity probe, uncertainty and its calibration."""
