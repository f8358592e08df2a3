"""Many runs with one command: which ones, on which machines, and where each stands."""
