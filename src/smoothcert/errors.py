"""The exceptions of smoothcert.

    SmoothcertError
    ├── InputError            a parameter or an input cannot be used (exit 2)
    ├── MissingExtraError     an optional package is not installed (exit 2)
    ├── DataError             a dataset is unknown, missing, corrupt or of the wrong shape (exit 3)
    ├── ModelError            a model cannot be loaded, or its answers are invalid (exit 4)
    │   ├── BatchTooLargeError    a batch does not fit in memory
    │   └── ModelMismatchError    the sampled votes are not those of the given model, or it is not deterministic
    ├── RunError              a run directory or a log cannot be used (exit 5)
    │   ├── RunBusyError          another process is writing to it
    │   ├── ManifestMismatchError it was made with other settings
    │   ├── CorruptRunError       it is damaged
    │   └── StepFailedError       a step of a reproduction failed (exit code of the step)
    ├── RegionMemoryError     a memory of promised regions cannot be used (exit 6)
    │   └── DamagedMemoryError    promised regions were lost or changed
    ├── BrokenCertificateError an attack changed the answer inside a certified radius (exit 7)
    ├── UnverifiedError       the independent checker does not confirm a result (exit 1)
    ├── ClusterError          a cluster is unreachable or full, or loses its workers (exit 8)
    ├── NoiseError            a noise generator fails its self-test (exit 9)
    └── InterruptedRunError   stopped on request; finished results are stored (exit 130)

Each message says what was given, what was expected and what to do. The command line prints the message without a
traceback, and ends with the exit code.
"""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    """The exit codes of the command line. `smoothcert --help` lists them, each with its meaning."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> ExitCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    SUCCESS = 0, "success"
    FAILURE = 1, "a check failed or another error"
    INPUT = 2, "invalid options or inputs"
    DATA = 3, "a dataset cannot be used"
    MODEL = 4, "a model cannot be used"
    RUN = 5, "a run or log cannot be used"
    MEMORY = 6, "a memory cannot be used"
    BROKEN_CERTIFICATE = 7, "an attack broke a certificate"
    CLUSTER = 8, "a cluster cannot be used"
    NOISE = 9, "the noise generator failed its self-test"
    INTERRUPTED = 130, "interrupted (can be resumed)"


class SmoothcertError(Exception):
    """Base class of all exceptions of smoothcert."""

    exit_code: int = ExitCode.FAILURE


class InputError(SmoothcertError, ValueError):
    """A parameter or an input cannot be used as given."""

    exit_code = ExitCode.INPUT


class MissingExtraError(SmoothcertError, ImportError):
    """An optional package is required and not installed."""

    exit_code = ExitCode.INPUT

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}: pip install 'smoothcert[{extra}]'")


class DataError(SmoothcertError):
    """A dataset is unknown, missing, corrupt or of the wrong shape."""

    exit_code = ExitCode.DATA


class ModelError(SmoothcertError):
    """A model cannot be loaded, or its answers are invalid."""

    exit_code = ExitCode.MODEL


class BatchTooLargeError(ModelError):
    """A batch does not fit in memory."""


class ModelMismatchError(ModelError):
    """The model gives other answers for single noisy copies than the votes that were counted for them."""


class RunError(SmoothcertError):
    """A run directory or a log file cannot be used."""

    exit_code: int = ExitCode.RUN


class RunBusyError(RunError):
    """Another process holds the run."""


class ManifestMismatchError(RunError):
    """The run on disk was made with other settings."""


class CorruptRunError(RunError):
    """The run on disk is damaged."""


class StepFailedError(RunError):
    """A step of a reproduction failed. The exit code is that of its command."""

    def __init__(self, message: str, *, exit_code: int) -> None:
        super().__init__(message)
        # A process ended by a signal has a negative return code, which is not a valid exit code.
        self.exit_code = exit_code if 0 < exit_code < 256 else 1


class RegionMemoryError(SmoothcertError):
    """A memory of promised regions is missing, damaged, of another version, or unreachable."""

    exit_code = ExitCode.MEMORY


class DamagedMemoryError(RegionMemoryError):
    """A memory of promised regions was changed. what: the problem; the message adds what to do."""

    WAY_OUT = (
        "Stop all programs that use it; then restore a backup, or copy what is provably intact to a new memory with "
        "`smoothcert memory recover OLD NEW`"
    )

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return f"{self.what}. It is not used for answers. {self.WAY_OUT}"


class BrokenCertificateError(SmoothcertError):
    """An attack changed the smoothed classifier's answer inside a certified radius: a certificate is false."""

    exit_code = ExitCode.BROKEN_CERTIFICATE


class UnverifiedError(SmoothcertError):
    """The independent checker does not confirm a new result, which is a bug of smoothcert."""

    exit_code = ExitCode.FAILURE


class ClusterError(SmoothcertError):
    """A cluster is unreachable or full, has other software, or repeatedly loses its workers."""

    exit_code = ExitCode.CLUSTER


class NoiseError(SmoothcertError):
    """A noise generator fails its self-test: known values, or the distribution."""

    exit_code = ExitCode.NOISE


class InterruptedRunError(SmoothcertError):
    """The work was stopped on request. Finished results are stored."""

    exit_code = ExitCode.INTERRUPTED
