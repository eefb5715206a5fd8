"""Entry point: the one place where an exception becomes an exit code."""

from __future__ import annotations

import io
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llmc.errors import UsageError


GROUPS = ("baseline", "bench", "engine", "runs", "suite")  # commands that have commands of their own


def main() -> None:
    """Run the command line and exit with one of ``errors.ExitCode`` (or, for ``exec``, the child's own)."""
    try:
        _prepare_process()
        code = _answer(sys.argv[1:])
    except KeyboardInterrupt:  # while modules were still being imported, or once more during the good-bye
        code = 130
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Python's own clean-up is not to be told any more
    sys.exit(code)


def _prepare_process() -> None:
    """Let requests to end do what Ctrl-C does, so that nothing half-made is left; and let any text be printed."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _answer(arguments: list[str]) -> int:
    code = 0
    try:
        if arguments in (["--version"], ["-V"]):
            # Answered before anything heavy is imported.
            from llmc import __version__

            print(f"llmc {__version__}")
        else:
            code = run(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        pass  # the verdict stands, read or not
    except OSError as failure:
        from llmc import console

        caught = _os_error(failure)
        console.error(caught)
        code = int(caught.exit_code)
    else:
        return code
    # Python would try once more to write what is left, and complain.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return code


def run(arguments: list[str]) -> int:
    """Parse and run; return the exit code. A traceback appears only with ``LLMC_DEBUG=1``."""
    import typer

    from llmc import console
    from llmc.cli.app import app
    from llmc.errors import ExitCode, LlmcError, UsageError

    # Newer versions of typer carry a copy of click, older ones need the package: this is the class in use.
    parser_error = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "UsageError")
    own = _own_words(arguments)
    console.set_json("--json" in own)
    command = _command(own)
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
    except (BrokenPipeError, SystemExit):
        # The reader of our output went away (`| head`): that is its decision, not a failure of ours. Of the
        # parser's own output click finds out first, and nothing else makes it exit.
        console.give_up_stdout()
        return int(ExitCode.OK)
    except OSError as failure:
        caught = _os_error(failure)
    except MemoryError:
        caught = LlmcError("there is not enough memory for this", "end other programs, or ask for less at a time")
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


def _own_words(arguments: list[str]) -> list[str]:
    """Return the words that are llmc's own: not those after ``--``, and of ``exec`` not the command that it runs."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    if arguments[:1] != ["exec"]:
        return arguments[:end]
    place = 1
    while place < end and arguments[place].startswith("--"):
        alone = "=" in arguments[place] or arguments[place] in ("--json", "--help")
        place += 1 if alone else 2
    return arguments[: min(place, end)]


def _command(arguments: list[str]) -> str:
    """Return the command's name as its JSON envelope has it, of two words for a command in a group."""
    words = [word for word in arguments if not word.startswith("-")][:2]
    return " ".join(words if words[:1] and words[0] in GROUPS else words[:1])


def _os_error(failure: OSError) -> UsageError:
    """Turn what no command foresaw into an error; without a file's name it is the current folder that is gone."""
    from llmc.errors import InputFileError, os_error

    try:
        os.getcwd()  # noqa: PTH109 - Path.cwd is the same, and pathlib is not needed here
    except FileNotFoundError:
        return InputFileError("the current folder has been deleted", "change into one that exists")
    return os_error(failure, "read or write", "check the path, its permissions and the room on the disk")


def _usage_error(failure: Any) -> UsageError:
    """Turn the parser's own error into ours; it knows which command's help to point at."""
    from llmc.errors import UsageError

    where = failure.ctx.command_path if failure.ctx else "llmc"
    return UsageError(failure.format_message(), f"see `{where} --help`")


if __name__ == "__main__":
    main()
