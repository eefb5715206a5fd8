"""The pages behind ``llmc explain``: one for every finding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Page:
    severity: Literal["error", "warning"]
    title: str
    what: str
    why: str
    remedy: str


def _error(title: str, what: str, why: str, remedy: str) -> Page:
    return Page("error", title, what, why, remedy)


def _warning(title: str, what: str, why: str, remedy: str) -> Page:
    return Page("warning", title, what, why, remedy)


PAGES: dict[str, Page] = {
    "not-multiple-choice": _error(
        "The command is not a multiple-choice run",
        "The command has no --multiple-choice, no -bf file, hands the file to -f, or asks for another mode too.",
        "llama-perplexity has several modes and silently prefers one: --hellaswag or --winogrande beat "
        "--multiple-choice, and without it a binary file is read as text. -f drops a final newline byte, and on "
        "old builds rewrites backslashes.",
        "Run `llama-perplexity -m MODEL --multiple-choice -bf FILE.bin`, with -bf and no other mode.",
    ),
    "exit-unknown": _warning(
        "The exit status is not known",
        "The logs were audited without the exit status of the process that wrote them.",
        "A log file does not carry it, and a crash after the last line leaves no other trace.",
        "Pass --exit-status N to `llmc audit`, or run the command through `llmc exec`, which sees it.",
    ),
    "exit-status": _error(
        "The engine reported a failure",
        "llama-perplexity ended with a non-zero exit status.",
        "It does so only for bad arguments, an unreadable file, or a model or context it could not create (1), "
        "for an assertion or a failed allocation (134) and for a crash (139).",
        "Read the last lines of stderr.log, named in the record.",
    ),
    "killed-by-signal": _error(
        "The engine was killed by a signal",
        "The process ended by a signal: it crashed, ran out of memory, or somebody ended it.",
        "SIGABRT is a failed assertion or allocation, SIGSEGV a crash, SIGKILL mostly the kernel's "
        "out-of-memory killer.",
        "For SIGKILL and SIGABRT try a smaller layout (`--memory-budget`, or -c and -np after `--`); for a crash "
        "try another build of llama.cpp.",
    ),
    "timeout": _error(
        "The run took longer than allowed",
        "The time limit passed and llmc ended the process.",
        "The limit is --timeout.",
        "Raise --timeout, score fewer questions with --limit, or use a faster build.",
    ),
    "stalled": _error(
        "The engine stopped doing anything",
        "Neither output nor CPU time nor input moved for the length of --stall-timeout; llmc ended the process.",
        "A deadlock in a driver or a thread pool, a hung network file system, or a device that went away.",
        "Run again; if it recurs, try fewer GPU layers or another build, or raise --stall-timeout.",
    ),
    "did-not-exit": _error(
        "The engine finished its work and did not exit",
        "Every line was printed, but the process went on living and had to be ended.",
        "Seen on macOS (llama.cpp issue 9868) and with backends that hang while they are torn down.",
        "The figures may well be right, but the process did not confirm them: run again, or use another build.",
    ),
    "left-children": _error(
        "The engine left processes behind",
        "The process ended while children of it were still running or held its output open; llmc ended them.",
        "llama-perplexity starts no processes. A wrapper script around it may, and then the exit status seen is "
        "the script's, not the engine's.",
        "Name the llama-perplexity binary itself, or let the wrapper `exec` it.",
    ),
    "interrupted": _error(
        "The run was interrupted",
        "Ctrl-C or a termination request ended the run before it was complete.",
        "The logs and this record are kept; the tasks scored so far are no sample of the benchmark.",
        "Run the same command again.",
    ),
    "no-output": _error(
        "The engine printed nothing",
        "The process printed no task lines at all.",
        "--log-disable prints nothing and exits 0. A model that cannot be loaded, or a crash, leave no lines either.",
        "Remove --log-disable and LLAMA_ARG_LOG_* settings; read stderr.log.",
    ),
    "not-announced": _warning(
        "The number of tasks was not announced",
        "The line `there are N tasks in prompt` is missing although rows were printed.",
        "At verbosity 0 to 2 llama.cpp hides it (flag, environment or config.ini), and its errors with it.",
        "Run without -lv, or with `-lv 3` or more.",
    ),
    "announced-mismatch": _error(
        "The engine announced another number of tasks than the file holds",
        "The number of tasks that llama.cpp read differs from the number in the benchmark file, or it announced "
        "several.",
        "The engine read other bytes: escapes rewrote the data (-e, or `escape` in config.ini), -f dropped some, "
        "or the log belongs to another file.",
        "Check that the log and the .bin belong together; pass --no-escape and -bf.",
    ),
    "scored-fewer": _error(
        "Fewer tasks were scored than announced",
        "llama-perplexity stopped part-way. The percentage it printed last covers only the tasks before that.",
        "Any task that it cannot read, that has more options than -np, or that does not fit in the context ends "
        "the run there, with exit status 0.",
        "The error line beside this finding says which; `llmc run` plans -np and -c so that it cannot happen.",
    ),
    "scored-more": _error(
        "More tasks were scored than there are",
        "There are more rows than tasks, or rows beyond the selection.",
        "Two logs in one file, a process that ran twice, or a log of another benchmark.",
        "Audit one run's log at a time, with the .bin that it scored.",
    ),
    "row-gap": _error(
        "The rows are not 1, 2, 3, ... without gap",
        "A row is missing, doubled or out of order.",
        "Output was lost, or two processes wrote to the same file.",
        "Run again with output to files of its own (`llmc run` and `llmc exec` do).",
    ),
    "impossible-accuracy": _error(
        "A running accuracy is impossible",
        "After n tasks the accuracy must be k/n for a whole k that grows by 0 or 1 with each task. It is not.",
        "The log was edited, mixed up or corrupted, or a fork prints something else in that column.",
        "Run again; if it recurs, the engine cannot be audited: use a known build.",
    ),
    "final-missing": _warning(
        "The final line is missing",
        "All rows are there, the line `Final result` is not.",
        "It is written to stderr since September 2024, is hidden at low verbosity, and may be lost with a lost "
        "stderr. The score given is llmc's own count of the rows.",
        "Give `llmc audit` both streams, or run with `-lv 3` or more.",
    ),
    "final-mismatch": _error(
        "The final result contradicts the rows",
        "The final line differs from the accuracy of the last row by more than the rounding of the engine.",
        "The two come from different runs, or a line was altered.",
        "Run again with output to files of its own.",
    ),
    "several-finals": _error(
        "There are several final lines",
        "More than one `Final result` was printed.",
        "Several runs in one log, or a fork that reloads the model and scores again (LLAMA_HOTSWAP_*).",
        "Audit one run at a time; unset LLAMA_HOTSWAP_* variables.",
    ),
    "baseline-mismatch": _error(
        "The random chance printed is not this file's",
        "`Random chance` is tasks divided by options; it differs from what the file holds.",
        "The engine scored other data than the file named.",
        "Check that the log and the .bin belong together.",
    ),
    "error-line": _error(
        "The engine printed an error",
        "A line known as an error of llama.cpp is in the output.",
        "Most of these errors are followed by exit status 0.",
        "The line says what failed; `llmc run` plans around the usual causes.",
    ),
    "bytes-read-mismatch": _error(
        "The engine read another number of bytes than the file holds",
        "`Read N bytes from binary file` differs from the file's size.",
        "A directory reads as 0 bytes; a file that is still being written, or another file of that name, differs.",
        "Check the path, and that the file is complete (`llmc inspect FILE`).",
    ),
    "benchmark-changed": _error(
        "The benchmark file changed during the run",
        "Its checksum after the run differs from the one before.",
        "Something rewrote it while the engine may have been reading it.",
        "Run again when nothing writes to the file.",
    ),
    "model-changed": _error(
        "The model file changed during the run",
        "Its size, modification time or inode differ from before the run.",
        "A download or conversion was writing to it.",
        "Run again when the file is complete.",
    ),
    "benchmark-unknown": _warning(
        "The log was not compared with the benchmark file",
        "No .bin was given, so that only the log itself was checked: that it is complete and agrees with itself.",
        "A log does not carry the file's size, its number of tasks or its random chance.",
        "Pass the file that was scored: `llmc audit LOG --bin FILE.bin`.",
    ),
    "selection-scored": _warning(
        "Only a selection of the tasks was scored",
        "The engine selected some of the file's tasks (--multiple-choice-tasks) and scored no others.",
        "llama.cpp shuffles with a fixed seed, so that the selection is always the same one.",
        "Compare only with runs of the same selection; pass --subset N to `llmc audit` to say that it was meant.",
    ),
    "bad-binary": _error(
        "The benchmark file is broken",
        "The file does not follow the binary format to its last byte.",
        "llama.cpp scores the tasks before the broken one and exits 0, or scores none and exits 0.",
        "Rebuild the file with `llmc build`, or fetch it again and compare its sha256.",
    ),
    "too-many-options": _error(
        "A task has more options than can be scored",
        "llama.cpp refuses more than 100 options and, on newer builds, more than -np.",
        "It needs one sequence per option.",
        "Raise -np to the widest task's option count, or leave -np to `llmc run`.",
    ),
    "context-too-small": _error(
        "A task does not fit in the context",
        "The tokens of one question with all its options exceed the total context.",
        "llama.cpp never truncates: it stops there, with exit status 0.",
        "Raise -c, or leave -c to `llmc run`, which plans it; raise --memory-budget if that is the limit.",
    ),
    "memory-budget": _error(
        "The run would need more memory than allowed",
        "llama-perplexity keeps total context x vocabulary x 4 bytes of logits on the host, zero-filled at start.",
        "With a 250,000-token vocabulary and 8,192 tokens of context that is 8 GB.",
        "Raise --memory-budget to the number given, or run on a machine with more memory.",
    ),
    "option-prefix": _error(
        "An option lies wholly inside what all options share",
        "Its tokens are a prefix of every other option's, so that nothing of it is left to score.",
        "llama.cpp then reads one token past the end of the option (token 0 in practice) and scores that.",
        "`--on-hazard exclude` scores the other tasks and lists the ones left out.",
    ),
    "no-common-prefix": _error(
        "The options of a task share no token at all",
        "The first tokens differ between the options, so that there is no last common token to score from.",
        "Without a BOS token and with a very short question, llama.cpp asks for the logits of token -1, which "
        "shifts the logits of every later task in the same batch.",
        "`--on-hazard exclude` scores the other tasks and lists the ones left out.",
    ),
    "duplicate-options": _warning(
        "Some tasks have equal options",
        "Two options of one task are the same text.",
        "They score the same and the first wins: where the gold comes second the task can never be right.",
        "Kept as published. `llmc inspect FILE` lists them.",
    ),
    "always-one-position": _warning(
        "The results look as if one position was always chosen",
        "Every task is right exactly where the gold stands at one position.",
        "A model with NaN weights always 'chooses' option 0, because comparisons with NaN are false; weak models "
        "do answer A always.",
        "`llmc run` tells the two apart with its health check.",
    ),
    "model-unhealthy": _error(
        "The model fails questions that any language model answers",
        "On a small file of obvious questions it always picks one position, or does no better than chance.",
        "NaN or broken weights, a wrong tokenizer, or a broken backend; llama.cpp reports a score all the same.",
        "Fetch or convert the model again; try a CPU build. --no-health-check accepts it, and the record says so.",
    ),
    "below-majority": _warning(
        "The accuracy is below the majority baseline",
        "Always choosing the most frequent gold position would score higher.",
        "llama.cpp prints uniform chance, which hides it: BoolQ is 62 % yes.",
        "Read the score against the majority baseline, not against chance.",
    ),
    "engine-unusable": _error(
        "The engine fails questions with known answers",
        "With a model whose every log-probability is known by hand, this binary gives other results or none.",
        "Builds of August 2025 to March 2026 fail every multiple-choice run without -kvu; other builds are simply "
        "broken, or are not llama-perplexity.",
        "Install a known build with `llmc engine install`, or name another with --engine.",
    ),
    "engine-unsupported": _warning(
        "The engine is one llmc has not met",
        "It answers the known questions, but its version or output is unlike the builds that llmc was tested with.",
        "Forks and future versions change their output.",
        "The audit decides run by run; `llmc engine install` gives the tested build.",
    ),
    "environment-scrubbed": _warning(
        "Settings from the environment were taken away",
        "Variables or configuration files that change llama.cpp's behaviour were set; llmc ran without them, or "
        "could not switch them off.",
        "llama.cpp reads over 150 LLAMA_* variables and two config.ini files; some break a run silently.",
        "Give what you meant to set as flags after `--`. /etc/llama.cpp/config.ini cannot be switched off: edit it.",
    ),
    "environment-in-force": _warning(
        "Settings from outside the command line were in force",
        "LLAMA_* variables or config.ini files were there when the command ran, and `llmc exec` changes nothing.",
        "llama.cpp reads over 150 such variables and two files; they change results, and the command line does "
        "not show it.",
        "Unset them, or use `llmc run`, which takes them away and records that it did.",
    ),
    "layout-noise": _warning(
        "Answers change with the layout",
        "Scoring the same questions at another -np and -c flipped more than 1 % of the answers.",
        "Batched arithmetic on quantized weights depends on how tokens are grouped.",
        "Differences between two runs below this share mean nothing; compare runs of one layout only.",
    ),
    "layout-cut-to-memory": _warning(
        "The layout was cut to fit the memory budget",
        "The usual layout for this benchmark and vocabulary needs more memory than the budget.",
        "Two runs at different layouts differ by numerical noise.",
        "Raise --memory-budget to get the usual layout, for runs that will be compared.",
    ),
    "preflight-bounds-only": _warning(
        "Token counts are bounds, not counts",
        "The tasks were not tokenized beforehand: lengths rest on bytes, hazards on string prefixes.",
        "The llama-cpp-python binding that tokenizes is not installed, or could not read this model.",
        "`llmc engine install` brings the binding.",
    ),
    "items-excluded": _warning(
        "Some tasks were left out",
        "Tasks that llama.cpp would score wrongly were excluded, as asked; the record lists them.",
        "See the hazard named beside this finding.",
        "Compare only with runs that left out the same tasks.",
    ),
    "items-rescored": _warning(
        "Some tasks were scored by llmc's own scorer",
        "llama-perplexity would have got them wrong, so that libllama scored them directly; the record lists them.",
        "The rule is llama.cpp's, with the common prefix ended one token before the end of the shortest option.",
        "Nothing to mend. `--on-hazard exclude` leaves them out instead, `--on-hazard fail` refuses the run.",
    ),
    "rule-undefined": _error(
        "The rule has no value for some items",
        "The rule asked for needs something that these items do not have: a common prefix, or a context without the "
        "question.",
        "llama.cpp's rule scores from the last token that all options share; acc_uncond needs each item's own "
        "unconditioned context.",
        "Choose another --rule, or leave these items out.",
    ),
    "cross-check": _error(
        "llama-perplexity and the scorer disagree",
        "Tasks scored both ways are right one way and wrong the other, by more than rounding explains.",
        "Both use the same weights and the same rule: one of the two computes something else, or the logits of one "
        "were shifted.",
        "Try another engine (`llmc engine install`), and compare at `-fa off`; report it with the record.",
    ),
    "beyond-training-context": _warning(
        "A task is longer than the context the model was trained on",
        "Its tokens lie past the training length given in the model's metadata.",
        "llama.cpp evaluates them all the same.",
        "Read the score of those tasks with care.",
    ),
    "non-finite": _error(
        "A log-probability is not a finite number",
        "The scorer got NaN or an infinity for a token of an option, and stopped there.",
        "Weights that hold NaN or overflow do this: a broken conversion or download, a faulty quantization, or a "
        "backend that computes the model wrongly. llama-perplexity would print a plausible score instead.",
        "Convert or fetch the model again; check it with another build of llama.cpp or with --gpu-layers 0.",
    ),
    "impossible-figure": _error(
        "The scorer reported figures that cannot be",
        "A log-probability above zero, an option without tokens, or lengths that are not those of the item.",
        "The item file changed under the run, or the scorer has a fault.",
        "Run it again; if it recurs, report it with the item's id.",
    ),
    "scorer-garbled": _error(
        "The scorer's output is not what it should be",
        "A line could not be read, or messages came out of their order.",
        "Something else wrote into the scorer's output, or the disk or pipe lost a part of it.",
        "Look at stdout.log, named in the record, and run it again.",
    ),
    "scorer-failed": _error(
        "The scorer could not do its work",
        "The scorer's process met an error and said so; the detail has its words.",
        "The llama-cpp-python binding does not fit this library, libllama refused a batch, or the scorer has a fault.",
        "`llmc engine install` brings a binding and a library that fit; stderr.log has the whole story.",
    ),
    "model-unreadable": _error(
        "libllama cannot load the model",
        "The file is cut off or damaged, holds a vocabulary only, is of an architecture that this build does not "
        "know, or is an encoder, which predicts no next token.",
        "A header may be whole while the weights behind it are not.",
        "Fetch the model again and compare its checksum; for a new architecture use a newer engine.",
    ),
    "memory-short": _error(
        "The scorer could not get the memory it needs",
        "An allocation for weights, cache or logits was refused.",
        "Weights and the cache must fit beside what else the machine does. The scorer holds at most 128 MiB of "
        "logits; its cache grows with the longest item.",
        "Close other programs, use a smaller quantization, or leave the longest items out.",
    ),
    "cannot-score": _error(
        "An item has no score under these settings",
        "One of its options has no tokens, or nothing comes before the first of them.",
        "A log-probability is always one of a token given those before it. Without a question the scorer takes BOS "
        "or EOS in its place; a vocabulary may have neither.",
        "Leave the item out, or score with BOS.",
    ),
    "no-shared-prefix": _error(
        "The model cannot share a prefix between sequences",
        "Sharing was asked for, and the model is recurrent or a hybrid.",
        "Such models keep one running state instead of a cache of tokens, and a state cannot be split.",
        "Leave the choice to llmc: it scores such models one sequence at a time.",
    ),
    "one-at-a-time": _warning(
        "Scored one sequence at a time",
        "Every option was evaluated from its first token, without sharing anything. This takes several times longer.",
        "Recurrent and hybrid models keep one running state, which sequences cannot share.",
        "Nothing to mend: the figures are right.",
    ),
    "items-truncated": _warning(
        "Some items were cut on the left",
        "Items longer than the context lost their first tokens, as asked.",
        "Protocols that truncate do this; what is left is another question.",
        "Compare only with runs that cut at the same length; score the whole items where the model allows it.",
    ),
}
