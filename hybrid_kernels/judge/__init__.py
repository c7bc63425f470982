"""What a change was: statistics, steps, events, the ledger of figures, verdicts and plans."""
