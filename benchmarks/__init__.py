"""asv suites: thin, with explicit versions, so that a history survives a refactoring and knows a changed method.

A version names the method of measurement, not the code under test. Raise it by hand when a number would mean something
else than before; what it superseded, and is to be measured again beside it, stays as a benchmark under its own name.
"""
