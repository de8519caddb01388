"""The diagnosis of a device: checks, speeds and memory, as text to paste into an issue or as JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch

from smoothcert.diagnosis.findings import Finding, Speed
from smoothcert.diagnosis.noise_checks import check_bits, check_kernel, check_law
from smoothcert.diagnosis.speeds import measure_speed, read_peak_memory
from smoothcert.diagnosis.vote_checks import SHAPES, check_votes
from smoothcert.environment import list_versions, name_processor
from smoothcert.models.devices import usable_cores


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """peak: (of what, bytes). versions: of smoothcert, the interpreter and libraries."""

    device: str
    versions: dict[str, str]
    findings: tuple[Finding, ...]
    speeds: tuple[Speed, ...]
    peak: tuple[str, int | None]

    @property
    def passed(self) -> bool:
        return all(finding.passed for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        what, size = self.peak
        return {
            "passed": self.passed,
            "device": self.device,
            "versions": self.versions,
            "checks": [asdict(finding) for finding in self.findings],
            "speeds": [{**asdict(speed), "sampling_by_bare": speed.share} for speed in self.speeds],
            "peak_memory": {"of": what, "bytes": size},
        }

    def describe(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield ", ".join(f"{name} {version}" for name, version in self.versions.items())
        yield f"device: {self.device}"
        yield ""
        width = max(len(finding.name) for finding in self.findings)
        for finding in self.findings:
            yield f"{'ok    ' if finding.passed else 'FAILED'}  {finding.name:{width}}  {finding.detail}"
        if self.speeds:
            yield ""
            yield f"{'network':16}{'batch':>7}{'forward/s':>14}{'sampling/s':>14}{'share':>8}"
        for speed in self.speeds:
            yield f"{speed.network:16}{speed.batch:7d}{speed.bare:14,.0f}{speed.sampling:14,.0f}{speed.share:8.0%}"
        what, size = self.peak
        if size is not None:
            yield ""
            yield f"peak memory {what}: {size / 2**20:,.0f} MiB"
        yield ""
        failed = [finding.name for finding in self.findings if not finding.passed]
        yield "all checks passed" if not failed else f"{len(failed)} of {len(self.findings)} checks failed"


def diagnose(
    device: torch.device,
    *,
    accelerated: bool | None = None,
    version: str,
    speeds: bool = True,
    progress: Callable[[str], None] = lambda what: None,
) -> Diagnosis:
    """Run every check on this device, and measure speeds if wanted. progress: called with the name of each step.

    version: of smoothcert. accelerated: use the code for accelerators; None: on every device but the processor.
    """
    on_device = device.type != "cpu" if accelerated is None else accelerated
    progress("noise bits")
    findings = [check_bits(device)]
    progress("noise kernel")
    findings.append(check_kernel(device))
    progress("noise law")
    findings.append(check_law())
    progress("votes")
    findings += check_votes(device, accelerated=on_device)
    measured = []
    for arch in SHAPES if speeds else ():
        progress(f"speed of {arch}")
        measured.append(measure_speed(arch, device, accelerated=on_device))
    return Diagnosis(
        device=_describe_device(device),
        versions={"smoothcert": version, **list_versions(), "system": platform.system()},
        findings=tuple(findings),
        speeds=tuple(measured),
        peak=read_peak_memory(device),
    )


def _describe_device(device: torch.device) -> str:
    if device.type == "cuda":
        return f"{device}, {torch.cuda.get_device_name(device)}, CUDA {torch.version.cuda}"
    if device.type == "mps":
        return f"mps, {platform.processor() or platform.machine()}, macOS {platform.mac_ver()[0]}"
    return f"cpu, {name_processor()}, {usable_cores()} of {os.cpu_count()} cores"
