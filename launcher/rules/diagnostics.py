"""Diagnostics that are not rules: of the mapping, the catalogues, import and rehearsal, each with its meaning."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """Meaning of a finding's id.

    Attributes:
        severity: of its findings; several joined with a comma.
        doc: what it reports and why, one or two sentences.
        works: what to do about it.
        source: origin of the finding.
    """

    id: str
    severity: str
    doc: str
    works: str
    source: str = "launch"


DIAGNOSTICS: dict[str, Diagnostic] = {}


def tell(id: str, severity: str, doc: str, works: str, source: str = "launch") -> None:
    """Declare the meaning of a finding's id; modules and backends with their own ids call it when imported."""
    DIAGNOSTICS[id] = Diagnostic(id=id, severity=severity, doc=doc, works=works, source=source)


for _id, _severity, _doc, _works in (
    (
        "MAP-UNSUPPORTED",
        "error, warning",
        "The chosen backend and version cannot express a value that the job sets; nothing is dropped silently. "
        "It is a warning where training is unaffected.",
        "change the field as the finding says, take another backend or version, or pass a native argument with "
        "backend.args.NAME=VALUE; launch explain FIELD shows what every backend can",
    ),
    (
        "MAP-UNREAD",
        "warning, change",
        "The backend passes a value of the job over beside its other values: a warning where the value changes "
        "training, a change where it is speed, memory or output.",
        "take the value away if it has no meaning here, or change what keeps it from being read; launch explain FIELD "
        "says what every backend makes of it",
    ),
    (
        "ARG-UNKNOWN",
        "error",
        "A pass-through argument (backend.args.NAME) is not in the catalogue of this backend version: its parser would "
        "refuse or ignore it.",
        "take the name that is suggested; launch args BACKEND lists all, launch explain NAME says which version has it",
    ),
    (
        "ARG-VALUE",
        "error",
        "The value of a pass-through argument has the wrong type, or is none of the choices of the backend's parser.",
        "launch explain NAME shows type, choices and default",
    ),
    (
        "ARG-CONTRADICTION",
        "error",
        "A pass-through argument says something else than a field that the job sets, for the same native argument.",
        "say it once: as the field (every backend understands it), or as backend.args.NAME",
    ),
    (
        "ARG-REPLACED",
        "change",
        "A pass-through argument replaces what the launcher would have written by itself; null leaves it out.",
        "nothing, if that is what you want; else leave backend.args.NAME out",
    ),
    (
        "MODEL-LOCAL",
        "warning",
        "The backend reads weights and tokenizer from a local directory, but the job names a model of a hub: the plan "
        "refers to the environment variable MODEL_PATH.",
        "download the model and set model.path=DIR, or export MODEL_PATH when it starts",
    ),
    (
        "REQ-BACKEND",
        "error",
        "No backend is chosen, or it or its version is not installed here.",
        "backend=NAME, backend.version=V; launch --help names the backends",
    ),
    (
        "CMD-USAGE",
        "error",
        "The command line is wrong: an unknown verb or option, a value that an option does not take, a file that "
        "cannot be written. Nothing was done; the exit code is 2.",
        "what the message names; launch VERB --help",
    ),
    (
        "CMD-REFUSED",
        "error",
        "What was asked for cannot be done here and now: a library is missing, nothing was found. The exit code is 1.",
        "what the message names",
    ),
    (
        "CMD-FILE",
        "error",
        "The operating system refuses to read or write a file while a verb works.",
        "see to the file that is named: its folder, permissions, free space",
    ),
    (
        "CMD-OUTPUT",
        "error",
        "Under the name of a file that would be written lies something else: another kind of file, a link, a folder "
        "that is not empty. It is not replaced; the exit code is 1.",
        "the name in the message, under which nothing lies",
    ),
    (
        "CMD-INTERNAL",
        "error",
        "Something that nobody foresaw: a fault of this program, or of the machine (memory, disk). The exit code is 1; "
        "the details are in the file that the message names, which only you can read.",
        "report it with that file, if the machine is in order",
    ),
    (
        "CMD-BUDGET",
        "error",
        "An input is larger, deeper or has more parts than any real one; it is refused before it is expanded.",
        "what the message names; launcher/budgets.py lists all limits",
    ),
    (
        "JOB-WORDS",
        "error",
        "A word of the command line, or a file that it names, is no part of a job: it is not of the form key=value, "
        "its value cannot be read, or its file is not there.",
        "quote the value ('…'), or name a file that is there",
    ),
    (
        "JOB-FIELD",
        "error",
        "There is no field of this name.",
        "take the name that is suggested; launch explain NAME",
    ),
    (
        "JOB-OPTION",
        "error",
        "A group (recipe, backend, model, hardware, cluster, task) has no file of this name.",
        "take a name that is suggested, or the path of a YAML file of your own",
    ),
    (
        "JOB-BOUND",
        "error",
        "A number that no job can have: below its minimum, or none that can be counted with.",
        "launch explain FIELD shows type, unit and limits",
    ),
    (
        "JOB-VALUE",
        "error",
        "A value that no job can have: of another type, none of the choices, or not written as its field wants it.",
        "launch explain FIELD shows type, unit, choices and limits",
    ),
    (
        "RUN-STATE",
        "error",
        "There is no run of this name, it has no such rank, or it cannot be stopped as it stands.",
        "launch ps lists the runs that you started",
    ),
    (
        "RUN-START",
        "error",
        "A job that is in order does not start here: its folder is in use, a program is missing, its queue refuses it.",
        "what the message names; launch doctor OVERRIDES tells what is missing here",
    ),
    (
        "CONVERT",
        "error",
        "A checkpoint cannot be converted or compared as asked: a file, a tensor or an option does not fit. All "
        "reasons are told at once.",
        "what the message names; launch convert VERB --help",
    ),
    (
        "RULES-DISABLED",
        "warning",
        "A rule is switched off by rules.disable: what it would have found is not told.",
        "take its id out of rules.disable when the reason for it is gone",
    ),
    (
        "IMPORT",
        "error",
        "Something in the file cannot be read: an argument that this version does not have, a value that does not fit, "
        "a loop or eval that cannot be resolved without running the script.",
        "correct the line that is named, give variables with --set NAME=VALUE, or take the rest with --partial",
    ),
    (
        "IMPORT-VERSION",
        "warning",
        "A script is read as for another version of its backend: the default one refuses some of its arguments.",
        "nothing, if that version is installed; else --backend-version, with which the refused arguments are errors",
    ),
    (
        "PORT-LEFT-OUT",
        "error, warning, change",
        "An argument of the script that the job was imported from is left out: the chosen backend does not have it. An "
        "error where the model or its loss is another one and nothing takes its place, a warning where training goes "
        "otherwise without it, a change where it is memory, speed or output. The job file keeps such arguments under "
        "imported.args, so that every check tells of them.",
        "take the substitute that is named, or go without it: imported.accept=[ARGUMENT] (all: every one), "
        "launch import --to B --accept ARGUMENT",
    ),
    (
        "PORT-DEFAULT",
        "change",
        "No argument of the script says a value that changes training, and the chosen backend has another default, or "
        "none: the default of the backend that the script was written for is written (imported.defaults names it).",
        "nothing, if training should stay as it was; else set the field that is named",
    ),
    (
        "PORT-NEAREST",
        "warning, change",
        "A port says in a field what an argument of one backend says; a warning where that is not quite the same.",
        "look at the field that is named; launch diff OLD NEW shows the rest",
    ),
    (
        "PORT-CHECKPOINT",
        "warning",
        "A port names a checkpoint to load that another stack saved, in a format that the chosen one may not read.",
        "convert the weights as it says (launch convert), or start anew: checkpoint.load=null",
    ),
    (
        "PORT-DATA",
        "error",
        "A port names token files of a fine-tuning, in which each stack stores prompts and answers its own way.",
        "name the raw data: data.format and data.paths",
    ),
    (
        "EST-FITS",
        "error",
        "The estimate of one device's memory is above what the hardware has, by more than the estimate's own error.",
        "launch estimate names changes that make it fit; estimate.enforce=false starts it anyway",
    ),
    (
        "REHEARSE-UNSUPPORTED",
        "error",
        "The rehearsal cannot honour a value that changes training, and does not train something else instead.",
        "change the value for the rehearsal, rehearse.entry=native, or run on the backend's own stack",
    ),
    (
        "REHEARSE-NATIVE",
        "error",
        "The backend's own entry point cannot run here on CPU: a package or a checkout is missing.",
        "install or export what the finding names, or rehearse.entry=core",
    ),
    (
        "REHEARSE-NODES",
        "error",
        "A job of several nodes cannot be rehearsed on one machine as it is.",
        "rehearse.shrink=true, rehearse.fake_world=true, or a cluster with real nodes",
    ),
    (
        "DEEP-REFUSED",
        "error",
        "The real megatron-core refuses the job while it builds the model or runs the first step of a rank.",
        "read the message: it is megatron-core's own, with the rank and what it did",
    ),
    (
        "DEEP-SHRUNK",
        "change",
        "What was smaller when check --deep built the job: widths, lengths and the batch. Layers, experts and the "
        "layout are the job's own.",
        "nothing; what only real widths show is not judged here",
    ),
    (
        "DEEP-NOT-RUN",
        "warning",
        "check --deep could not start the real megatron-core; the job is judged by the rules alone.",
        "pip install 'launch-llm[rehearsal]'",
    ),
    (
        "BALANCE",
        "error",
        "launch balance has no answer: there is no pipeline, a figure is missing, or no split keeps every stage within "
        "its memory; the finding says which stage lacks how much.",
        "more stages, more recomputation, a smaller micro batch; hardware=NAME where figures are missing",
    ),
    (
        "SEARCH-PROFILE",
        "error",
        "A file of measured times cannot be used as it is: a column is missing, a figure is no number or below zero, "
        "or no row is of a layout that the search found.",
        "mend the cell that the finding names (file:line and column); --emit-profile writes an empty file",
    ),
    (
        "SEARCH-NEEDS",
        "error",
        "launch search cannot rank anything without this value: model, hardware, global batch and sequence length are "
        "not searched.",
        "set the field that the finding names",
    ),
    (
        "SEARCH-VARIES",
        "warning",
        "The command line sets a value that launch search varies: the candidates need not have it.",
        "search.fix=[AXIS] keeps the value; search.axes=[AXIS] says that it is meant to vary",
    ),
):
    tell(_id, _severity, _doc, _works)
