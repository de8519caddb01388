"""An independent check of certificates: from the counted votes to every bound and radius, in ball arithmetic.

Nothing here is shared with the code that samples, bounds and certifies; only the errors are. The formulas are derived
again and used forward: a stored number is put into the inequality that makes it true. Needs python-flint.
"""
