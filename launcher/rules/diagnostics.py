"""Diagnostics that are not rules: of the mapping, the catalogues, import and rehearsal, each with its meaning."""

from launcher.records import dataclass


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


def declare_diagnostic(id: str, severity: str, doc: str, works: str, source: str = "launch") -> None:
    """Declare the meaning of a finding's id; modules and backends with their own ids call it when imported."""
    DIAGNOSTICS[id] = Diagnostic(id=id, severity=severity, doc=doc, works=works, source=source)


for _id, _severity, _doc, _works in (
    (
        "MAP-UNSUPPORTED",
        "error, warning",
        "The chosen backend and version cannot express a value that the job sets; nothing is dropped silently. "
        "It is a warning where training is unaffected.",
        "change the field as the finding describes, use another backend or version, or pass a native argument with "
        "backend.args.NAME=VALUE; launch explain FIELD shows what every backend supports",
    ),
    (
        "MAP-UNREAD",
        "warning, change",
        "The backend ignores a value of the job, given its other values: a warning where the value affects training, a "
        "change where it affects speed, memory or output only.",
        "remove the value if it has no effect here, or change the setting that disables it; launch explain FIELD shows "
        "how every backend handles it",
    ),
    (
        "ARG-UNKNOWN",
        "error",
        "A pass-through argument (backend.args.NAME) is not in the catalogue of this backend version: its parser would "
        "refuse or ignore it.",
        "use the suggested name; launch args BACKEND lists all names, launch explain NAME shows which versions have it",
    ),
    (
        "ARG-VALUE",
        "error",
        "The value of a pass-through argument has the wrong type, or is not among the choices of the backend's parser.",
        "launch explain NAME shows type, choices and default",
    ),
    (
        "ARG-CONTRADICTION",
        "error",
        "A pass-through argument and a field of the job set the same native argument to different values.",
        "set one of them: the field (portable to every backend), or backend.args.NAME",
    ),
    (
        "ARG-REPLACED",
        "change",
        "A pass-through argument replaces the value that the launcher would write; null removes the argument.",
        "no action if this is intended; otherwise remove backend.args.NAME",
    ),
    (
        "MODEL-LOCAL",
        "warning",
        "The backend reads weights and tokenizer from a local directory, but the job names a model of a hub: the plan "
        "refers to the environment variable MODEL_PATH.",
        "download the model and set model.path=DIR, or export MODEL_PATH when it starts",
    ),
    (
        "DATA-FILE",
        "error, warning",
        "A file of data.paths or data.validation_paths that lies on this machine is not what the backend's own code "
        "reads: another container, other columns, or nothing. Only its first 16 KiB are read. A warning where the "
        "backend may read it nevertheless, or the job runs on other machines.",
        "what the finding names; docs/start/data.md shows how other forms are rewritten; rules.disable=[DATA-FILE] "
        "where the first record is not like the others",
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
        "The command line is invalid: an unknown verb or option, a value that an option does not accept, a file that "
        "cannot be written. Nothing was done; the exit code is 2.",
        "what the message names; launch VERB --help",
    ),
    (
        "CMD-REFUSED",
        "error",
        "The request cannot be fulfilled on this machine: a library is missing, or nothing was found. The exit code "
        "is 1.",
        "what the message names",
    ),
    (
        "CMD-FILE",
        "error",
        "The operating system refused to read or write a file.",
        "check the named file: its directory, permissions and free space",
    ),
    (
        "CMD-OUTPUT",
        "error",
        "The path of an output file already exists as something else: another kind of file, a link, or a directory "
        "that is not empty. It is not replaced; the exit code is 1.",
        "the free path that the message suggests",
    ),
    (
        "CMD-INTERNAL",
        "error",
        "An unexpected error: a bug in this program, or a problem of the machine (memory, disk). The exit code is 1; "
        "the details are in the file that the message names, which only you can read.",
        "report it with that file, unless the machine is at fault",
    ),
    (
        "CMD-BUDGET",
        "error",
        "An input exceeds a limit on size, depth or number of parts; it is refused before it is expanded.",
        "what the message names; launcher/budgets.py lists all limits",
    ),
    (
        "CMD-CHECKOUT",
        "error",
        "The parser of a fork's checkout cannot be read from its source, or cannot be kept under that name.",
        "what the message names: the folder of the checkout, --like BACKEND@VERSION, another --name, or --replace",
    ),
    (
        "JOB-WORDS",
        "error",
        "An argument of the command line is not a valid override: it is not of the form key=value, its value cannot be "
        "parsed, or the file that it names does not exist.",
        "quote the value ('…'), or name an existing file",
    ),
    (
        "JOB-FIELD",
        "error",
        "There is no field of this name.",
        "use the suggested name; launch explain NAME",
    ),
    (
        "JOB-OPTION",
        "error",
        "A group (recipe, backend, model, hardware, cluster, task) has no file of this name.",
        "use a suggested name, or the path of a YAML file",
    ),
    (
        "JOB-BOUND",
        "error",
        "A number outside the bounds of its field, or not finite.",
        "launch explain FIELD shows type, unit and limits",
    ),
    (
        "JOB-VALUE",
        "error",
        "An invalid value of a field: of another type, not among the choices, or not in the required format.",
        "launch explain FIELD shows type, unit, choices and limits",
    ),
    (
        "RUN-STATE",
        "error",
        "There is no run of this name, it has no such rank, or it cannot be stopped in its present state.",
        "launch ps lists the runs that you started",
    ),
    (
        "RUN-START",
        "error",
        "A valid job cannot be started here: its folder is in use, a program is missing, or its queue refuses it.",
        "what the message names; launch doctor OVERRIDES lists what is missing here",
    ),
    (
        "CONVERT",
        "error",
        "A checkpoint cannot be converted or compared as asked: a file, a tensor or an option does not fit. All "
        "reasons are reported at once.",
        "what the message names; launch convert VERB --help",
    ),
    (
        "RULES-DISABLED",
        "warning",
        "A rule is disabled by rules.disable: its findings are not reported.",
        "remove its id from rules.disable when it is no longer needed",
    ),
    (
        "IMPORT",
        "error",
        "Something in the file cannot be read: an argument that this version does not have, a value that does not fit, "
        "a loop or eval that cannot be resolved without running the script.",
        "correct the named line, set variables with --set NAME=VALUE, or import the rest with --partial",
    ),
    (
        "IMPORT-VERSION",
        "warning",
        "A script is read for another version of its backend: the default version refuses some of its arguments.",
        "no action if that version is installed; otherwise --backend-version, with which the refused arguments are "
        "errors",
    ),
    (
        "PORT-LEFT-OUT",
        "error, warning, change",
        "An argument of the imported script is dropped: the chosen backend does not have it. An error where this "
        "changes the model or its loss and nothing replaces it, a warning where it changes training, a change where "
        "it affects memory, speed or output only. The job file keeps such arguments under imported.args, so that "
        "every check reports them.",
        "use the named substitute, or accept the change: imported.accept=[ARGUMENT] (all: every one), "
        "launch import --to B --accept ARGUMENT",
    ),
    (
        "PORT-DEFAULT",
        "change",
        "The script does not set a value that affects training, and the chosen backend has another default, or none: "
        "the default of the source backend is written (imported.defaults names it).",
        "no action if training should stay the same; otherwise set the named field",
    ),
    (
        "PORT-LAYOUT",
        "change",
        "The script does not set a size of the parallel layout, and the chosen backend has another default, which is "
        "kept: the devices that share an expert, for example. Memory and speed differ, training does not.",
        "no action; set the named field for another layout",
    ),
    (
        "PORT-SUBSTITUTE",
        "warning, change",
        "The chosen backend cannot take a value of the imported script and has something in its place, which is "
        "written (imported.replaced keeps the script's value). A warning where training is not exactly the same.",
        "no action if the substitute is right; otherwise set the named field",
    ),
    (
        "PORT-NEAREST",
        "warning, change",
        "A port expresses an argument of one backend by a field; a warning where the two are not fully equivalent.",
        "check the named field; launch diff OLD NEW shows the rest",
    ),
    (
        "PORT-CHECKPOINT",
        "warning",
        "A port names a checkpoint to load that another stack saved, in a format that the chosen one may not read.",
        "convert the weights as the message describes (launch convert), or start without it: checkpoint.load=null",
    ),
    (
        "PORT-DATA",
        "error",
        "A port names token files for fine-tuning, in which each backend stores prompts and answers differently.",
        "name the raw data: data.format and data.paths",
    ),
    (
        "PORT-MODEL",
        "error",
        "The imported script trains a model that also reads images, audio or video, and the chosen backend trains "
        "language models only.",
        "choose a language model (model=NAME, model.path=DIR), or stay with the script's backend",
    ),
    (
        "EST-FITS",
        "error",
        "The estimated memory of a device exceeds its capacity by more than the error of the estimate.",
        "launch estimate suggests changes with which it fits; estimate.enforce=false starts it anyway",
    ),
    (
        "REHEARSE-UNSUPPORTED",
        "error",
        "The rehearsal does not support a value that affects training, and does not train with another value instead.",
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
        "A job of several nodes cannot be rehearsed on one machine without changes.",
        "rehearse.shrink=true, rehearse.fake_world=true, or a cluster with real nodes",
    ),
    (
        "DEEP-REFUSED",
        "error",
        "megatron-core itself refuses the job while it builds the model or runs the first step of a rank.",
        "read the message of megatron-core, which names the rank and the operation",
    ),
    (
        "DEEP-SHRUNK",
        "change",
        "Sizes that check --deep reduced to build the job: widths, lengths and the batch. Layers, experts and the "
        "layout are unchanged.",
        "no action; errors that appear only at full width are not detected",
    ),
    (
        "DEEP-NOT-RUN",
        "warning",
        "check --deep could not start megatron-core; only the rules were applied.",
        "pip install 'launch-llm[rehearsal]'",
    ),
    (
        "BALANCE",
        "error",
        "launch balance found no solution: there is no pipeline, a figure is missing, or no split keeps every stage "
        "within its memory; the finding names the stage and by how much it exceeds it.",
        "more stages, more recomputation, a smaller micro batch; hardware=NAME where figures are missing",
    ),
    (
        "SEARCH-PROFILE",
        "error",
        "A file of measured times is invalid: a column is missing, a value is not a number or is negative, or no row "
        "has a layout that the search found.",
        "correct the cell that the finding names (file:line and column); --emit-profile writes an empty file",
    ),
    (
        "SEARCH-NEEDS",
        "error",
        "launch search requires this value: model, hardware, global batch and sequence length are not searched.",
        "set the field that the finding names",
    ),
    (
        "SEARCH-KEEPS",
        "warning",
        "An argument in backend.args sets what launch search would vary: every candidate has it.",
        "the field in place of the argument, or neither",
    ),
    (
        "SEARCH-VARIES",
        "warning",
        "The command line sets a value that launch search varies: candidates may have other values.",
        "search.fix=[AXIS] keeps the value; search.axes=[AXIS] confirms that it may vary",
    ),
):
    declare_diagnostic(_id, _severity, _doc, _works)
