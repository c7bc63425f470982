"""Sampling, facts, sweeps, walks and alternating rounds: measures, prints nothing."""
