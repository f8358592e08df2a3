"""Where environments come from: the dm_control suite, dm_env and Gymnasium, and their names."""
