"""Entry point: the one place where an exception becomes an exit code."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llmc.errors import UsageError


def main() -> None:
    """Run the command line and exit with one of ``errors.ExitCode`` (or, for ``exec``, the child's own)."""
    arguments = sys.argv[1:]
    if arguments in (["--version"], ["-V"]):
        # Answered before anything heavy is imported.
        from llmc import __version__

        print(f"llmc {__version__}")
        sys.exit(0)
    sys.exit(run(arguments))


def run(arguments: list[str]) -> int:
    """Parse and run; return the exit code. A traceback appears only with ``LLMC_DEBUG=1``."""
    import typer

    from llmc import console
    from llmc.cli.app import app
    from llmc.errors import ExitCode, LlmcError, UsageError, os_error

    # Newer versions of typer carry a copy of click, older ones need the package: this is the class in use.
    parser_error = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "UsageError")
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    console.set_json("--json" in own)
    command = next((word for word in own if not word.startswith("-")), "")
    console.leave_stdout(command == "exec")
    tail: list[str] = []
    if command == "run" and own is not arguments:
        # What follows `--` is for llama-perplexity; before it, words are benchmarks.
        arguments, tail = own, arguments[len(own) + 1 :]
    try:
        code = app(args=arguments, prog_name="llmc", standalone_mode=False, obj=tail)
        return int(code or 0)
    except LlmcError as failure:
        caught = failure
    except typer.Exit as leave:
        return leave.exit_code
    except (KeyboardInterrupt, typer.Abort):
        caught = LlmcError("interrupted")
        caught.exit_code, caught.kind = ExitCode.INTERRUPTED, "interrupted"
    except BrokenPipeError:
        # The reader of our output went away (`| head`): that is its decision, not a failure of ours.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(ExitCode.OK)
    except OSError as failure:
        caught = os_error(failure, "read or write", "check the path, its permissions and the room on the disk")
    except Exception as bug:
        if isinstance(bug, parser_error):
            if type(bug).__name__ == "NoArgsIsHelpError" and not console.json_mode():
                console.show_text(str(bug))
                return int(ExitCode.USAGE)
            console.error(_usage_error(bug), command)
            return int(ExitCode.USAGE)
        if os.environ.get("LLMC_DEBUG") == "1":
            raise
        caught = LlmcError(
            f"internal error: {type(bug).__name__}: {bug}",
            "run again with LLMC_DEBUG=1 and report the traceback",
        )
        caught.kind = "internal"
    if os.environ.get("LLMC_DEBUG") == "1" and not isinstance(caught, UsageError):
        raise caught
    console.error(caught, command)
    return int(caught.exit_code)


def _usage_error(failure: Any) -> UsageError:
    """Turn the parser's own error into ours; it knows which command's help to point at."""
    from llmc.errors import UsageError

    where = failure.ctx.command_path if failure.ctx else "llmc"
    return UsageError(failure.format_message(), f"see `{where} --help`")


if __name__ == "__main__":
    main()
