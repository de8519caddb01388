"""`smoothcert doctor`: whether noise, votes and speed are right on a device of this machine."""

from smoothcert.diagnosis.diagnosis import Diagnosis, diagnose

__all__ = ["Diagnosis", "diagnose"]
