"""The exceptions smoothcert raises on purpose.

    SmoothcertError
    ├── InputError            a parameter or an input cannot be used (exit 2)
    ├── MissingExtraError     an optional package is not installed (exit 2)
    ├── DataError             a dataset is unknown, missing, corrupt or of the wrong shape (exit 3)
    ├── ModelError            a model cannot be loaded, or does not answer as a classifier must (exit 4)
    │   ├── BatchTooLargeError    memory does not hold a batch of this size
    │   └── ModelMismatchError    what was sampled is not the model that was given, or it is no fixed function
    ├── RunError              a run directory or a log cannot be used (exit 5)
    │   ├── RunBusyError          another process is writing to it
    │   ├── ManifestMismatchError it was made with other settings
    │   ├── CorruptRunError       it is damaged
    │   └── StepFailedError       a step of a reproduction failed (exit code of the step)
    ├── RegionMemoryError     a memory of promised regions cannot be used (exit 6)
    │   └── DamagedMemoryError    it has lost or changed what was promised
    ├── BrokenCertificateError an attack inside a certified radius changed the answer (exit 7)
    ├── UnverifiedError       the independent checker does not confirm a result (exit 1)
    ├── ClusterError          a cluster cannot be reached, has no room, or loses its workers (exit 8)
    ├── NoiseError            the noise is not what it must be: a generator fails its self-test (exit 9)
    └── InterruptedRunError   stopped on request; what was finished is stored (exit 130)

Every message says what was given, what was expected and what to do next. The command line prints the message and
leaves with the exit code; it never shows a traceback for one of these.
"""

from __future__ import annotations


class SmoothcertError(Exception):
    """Base of everything smoothcert raises on purpose."""

    exit_code = 1


class InputError(SmoothcertError, ValueError):
    """A parameter or an input cannot be used as given."""

    exit_code = 2


class MissingExtraError(SmoothcertError, ImportError):
    """An optional package is needed for what was asked."""

    exit_code = 2

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}: pip install 'smoothcert[{extra}]'")


class DataError(SmoothcertError):
    """A dataset is unknown, missing, corrupt or of the wrong shape."""

    exit_code = 3


class ModelError(SmoothcertError):
    """A model cannot be loaded, or does not answer as a classifier must."""

    exit_code = 4


class BatchTooLargeError(ModelError):
    """Memory does not hold a batch of this size."""


class ModelMismatchError(ModelError):
    """The model, asked again about single noisy copies, does not give the votes that were counted for them."""


class RunError(SmoothcertError):
    """A run directory or a log file cannot be used."""

    exit_code = 5


class RunBusyError(RunError):
    """Another process holds the run."""


class ManifestMismatchError(RunError):
    """The run on disk was made with other settings."""


class CorruptRunError(RunError):
    """The run on disk is damaged."""


class StepFailedError(RunError):
    """A command that was run as a step of a reproduction failed; the exit code is its own."""

    def __init__(self, message: str, *, exit_code: int) -> None:
        super().__init__(message)
        # A process that a signal ended has a negative code, which no process can leave with.
        self.exit_code = exit_code if 0 < exit_code < 256 else 1


class RegionMemoryError(SmoothcertError):
    """A memory of promised regions is missing, damaged, of another version, or out of reach."""

    exit_code = 6


class DamagedMemoryError(RegionMemoryError):
    """A memory of promised regions is not what was written. what: without the way out, which the message adds."""

    WAY_OUT = (
        "Stop everybody who uses it; then restore a backup, or write what is provably intact to a new memory with "
        "`smoothcert memory recover OLD NEW`"
    )

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return f"{self.what}. Nothing is answered from it. {self.WAY_OUT}"


class BrokenCertificateError(SmoothcertError):
    """An attack inside a certified radius changed the smoothed classifier's answer: a certificate is false."""

    exit_code = 7


class UnverifiedError(SmoothcertError):
    """The independent checker does not confirm a result that was just computed: a defect of ours."""

    exit_code = 1


class ClusterError(SmoothcertError):
    """A cluster cannot be reached, has no room, has other software, or loses its workers again and again."""

    exit_code = 8


class NoiseError(SmoothcertError):
    """A generator of noise does not give what it must: known answers, or the right distribution."""

    exit_code = 9


class InterruptedRunError(SmoothcertError):
    """The work was stopped on request; everything finished so far is stored."""

    exit_code = 130
