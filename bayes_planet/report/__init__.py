"""What people look at: videos, plots and the HTML report of a run."""
