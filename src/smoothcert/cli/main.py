"""The command line: `smoothcert VERB …`. Each verb has its own file; this one registers them and reports errors."""

from __future__ import annotations

import gc
import io
import os
import sys
import warnings
from typing import Annotated

import typer

from smoothcert.cli import data, memory, selector, sigma
from smoothcert.cli.advise import advise
from smoothcert.cli.attack import attack
from smoothcert.cli.certify import DEFAULT_CERTIFICATE, certify
from smoothcert.cli.compare import compare
from smoothcert.cli.demo import demo
from smoothcert.cli.doctor import doctor
from smoothcert.cli.export import export
from smoothcert.cli.options import CERTIFICATE_FORMS
from smoothcert.cli.plan import plan
from smoothcert.cli.plot import plot
from smoothcert.cli.predict import predict
from smoothcert.cli.radius import radius
from smoothcert.cli.recertify import recertify
from smoothcert.cli.report import report
from smoothcert.cli.table import table
from smoothcert.cli.train import train
from smoothcert.cli.verb import Verb
from smoothcert.cli.verify import verify
from smoothcert.cli.zoo import zoo
from smoothcert.errors import ExitCode, SmoothcertError

app = typer.Typer(
    name="smoothcert",
    help="Certified robustness by randomized smoothing.",
    epilog=f"Exit codes: {', '.join(f'{code.value} {code.meaning}' for code in ExitCode)}.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from smoothcert import __version__

        typer.echo(f"smoothcert {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Certified robustness by randomized smoothing."""


app.command(cls=Verb)(demo)
app.add_typer(data.app, name="data")
app.add_typer(sigma.app, name="sigma")
app.add_typer(selector.app, name="selector")
app.add_typer(memory.app, name="memory")
app.command(cls=Verb)(zoo)
app.command(cls=Verb)(advise)
app.command(cls=Verb)(train)
app.command(cls=Verb)(predict)
app.command(cls=Verb, epilog=f"{CERTIFICATE_FORMS} {DEFAULT_CERTIFICATE}")(certify)
app.command(cls=Verb, epilog=CERTIFICATE_FORMS)(recertify)
app.command(cls=Verb)(attack)
app.command(cls=Verb)(table)
app.command(cls=Verb)(compare)
app.command(cls=Verb)(plot)
app.command(cls=Verb)(report)
app.command(cls=Verb)(export)
app.command(cls=Verb)(verify)
app.command(cls=Verb)(radius)
app.command(cls=Verb)(plan)
app.command(cls=Verb)(doctor)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    typer.echo(f"smoothcert: {message}", err=True)


def _allow_any_characters() -> None:
    """Print characters that the terminal cannot encode as escapes instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def run(app: typer.Typer = app) -> None:
    """Entry point of the console script: one message and an exit code for every expected error."""
    warnings.showwarning = _show_warning
    _allow_any_characters()
    # Start-up creates many permanent objects; scanning them for garbage repeatedly costs a tenth of a second.
    gc.set_threshold(100_000, 20, 20)
    try:
        app(prog_name=app.info.name)
    except SmoothcertError as error:
        typer.echo(f"smoothcert: {error}", err=True)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader is gone (as with `| head`). Python would report it again while closing stdout.
        if sys.stdout is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except MemoryError:
        typer.echo("smoothcert: out of memory; if samples are being drawn, use a smaller --batch", err=True)
        sys.exit(1)
    except OSError as error:
        name = str(error.filename or "")
        named = f" ({name if len(name) <= 200 else name[:200] + '…'})" if name else ""
        typer.echo(f"smoothcert: {error.strerror or error}{named}", err=True)
        sys.exit(1)
    finally:
        # The process ends now; without this the interpreter scans all memory for garbage first.
        gc.freeze()


if __name__ == "__main__":
    run()
