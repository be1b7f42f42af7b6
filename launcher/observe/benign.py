"""Lines that are never the reason of a failure: notices and warnings, and what announces a handled traceback."""

import re

# In the forms of the libraries that write them.
_BENIGN = (
    # glog and torch: [W326 09:37:44, [rank0]:[W 09:37, W0219 09:17:03, [W socket.cpp:401], W NPUStream.cpp:409]
    r"^\W{0,2}[WIDV]\d* ?\d\d[:\d]",
    r"^\[[WI]\d*[ \d]\S*",
    r"^[WI]\d{4} ",
    r"^W \w+\.cpp",
    # Python: UserWarning: …, and the source line below it
    r"\b\w*Warning: ",
    r"^\S+ warnings?\.warn",
    # logging: WARNING:name:…, [WARNING] …, 2022-05-11 06:20:16 | WARNING | …, 2024-11-21 15:10:51: W tensorflow/…
    r"^\W*(WARNING|WARN|INFO|DEBUG|NOTICE|NOTE)\b",
    r"\[(WARNING|WARN|INFO|DEBUG)\b",
    r"^\d{4}-\d\d-\d\d[T ][\d:.,]+:? ?[-|]? *(\S+ +[-|]? *)?(\| *)?(WARNING|WARN|INFO|DEBUG|W|I)\b",
    r"\b(NCCL (INFO|WARN|TRACE)|submitit WARNING|libibverbs: Warning|: warning: )",
    # wandb goes on without its server
    r"wandb: (?!ERROR)",
)
BENIGN = re.compile("|".join(_BENIGN))
# What stands before a traceback that Python or a library drops.
HANDLED = re.compile(
    r"Exception ignored (in|on)|Exception in thread |--- Logging error ---|Error in atexit|[Rr]etry attempt failed"
)
# What stands before one that was handled if its rank went on.
WARNED = re.compile(r"[Rr]etrying\b|\bWARNING\b|[Ww]arning:|\[W\d|\b(ignor|skipp)(ing|ed)\b|[Ff]alling back")
