"""Secrets as services make them, each drawn at random, and where people write them: for tests that search for them."""

import base64
import json
import random
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ALNUM = string.ascii_letters + string.digits
LETTERS = string.ascii_letters
HEX = "0123456789abcdef"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """A text with a secret in it, and the part that may be found nowhere."""

    text: str
    secret: str


Maker = Callable[[random.Random], Planted]


def drawn(chance: random.Random, alphabet: str, count: int) -> str:
    """Return random characters."""
    return "".join(chance.choices(alphabet, k=count))


def _token(prefix: str, alphabet: str, count: int, tail: str = "") -> Maker:
    def make(chance: random.Random) -> Planted:
        text = prefix + drawn(chance, alphabet, count) + tail
        return Planted(text=text, secret=text)

    return make


def _within(form: str, alphabet: str, count: int) -> Maker:
    def make(chance: random.Random) -> Planted:
        secret = drawn(chance, alphabet, count)
        return Planted(text=form.replace("SECRET", secret), secret=secret)

    return make


def _uuid(prefix: str) -> Maker:
    def make(chance: random.Random) -> Planted:
        text = prefix + "-".join(drawn(chance, HEX, count) for count in (8, 4, 4, 4, 12))
        return Planted(text=text, secret=text)

    return make


def _jwt(chance: random.Random) -> Planted:
    def part(tree: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(tree).encode()).decode().rstrip("=")

    head, body = part({"alg": "HS256", "typ": "JWT"}), part({"sub": drawn(chance, ALNUM, 12)})
    text = f"{head}.{body}.{drawn(chance, ALNUM + '-_', 43)}"
    return Planted(text=text, secret=text)


def _slack(chance: random.Random) -> Planted:
    numbers = "-".join(drawn(chance, string.digits, 12) for _ in range(2))
    text = f"xox{chance.choice('bp')}-{numbers}-{drawn(chance, ALNUM, 24)}"
    return Planted(text=text, secret=text)


def _private_key(chance: random.Random) -> Planted:
    lines = [drawn(chance, ALNUM + "+/", 64) for _ in range(3)]
    text = "\n".join(["-----BEGIN RSA PRIVATE KEY-----", *lines, "-----END RSA PRIVATE KEY-----"])
    return Planted(text=text, secret=lines[1])


# What is recognised whatever its name is.
SHAPES: dict[str, Maker] = {
    "Hugging Face": _token("hf_", LETTERS, 34),
    "Hugging Face, small letters": _token("hf_", string.ascii_lowercase, 34),
    "Hugging Face, organization": _token("api_org_", LETTERS, 34),
    "ModelScope": _uuid("ms-"),
    "GitHub, classic": _token("ghp_", ALNUM, 36),
    "GitHub, fine-grained": _token("github_pat_", ALNUM, 82),
    "GitHub, app": _token("ghs_", ALNUM, 36),
    "GitLab": _token("glpat-", ALNUM + "-_", 20),
    "Anthropic": _token("sk-ant-api03-", ALNUM + "-_", 93, "AA"),
    "OpenAI": _token("sk-", ALNUM, 48),
    "OpenAI, project": _token("sk-proj-", ALNUM + "-_", 120),
    "DeepSeek": _token("sk-", HEX, 32),
    "OpenRouter": _token("sk-or-v1-", HEX, 64),
    "AWS": _token("AKIA", string.ascii_uppercase + "234567", 16),
    "AWS, temporary": _token("ASIA", string.ascii_uppercase + "234567", 16),
    "Alibaba Cloud": _token("LTAI5t", ALNUM, 18),
    "Tencent Cloud": _token("AKID", ALNUM, 32),
    "Volcengine": _token("AKLT", ALNUM, 40),
    "Azure storage": _within("AccountName=x;AccountKey=SECRET;EndpointSuffix=core.windows.net", ALNUM + "+/", 86),
    "Azure, signed address": _within("https://x.blob.core.windows.net/c?sv=2024&sig=SECRET", ALNUM, 43),
    "AWS, signed address": _within("https://b.s3.amazonaws.com/k?X-Amz-Signature=SECRET&x=1", HEX, 64),
    "Google": _token("AIza", ALNUM + "-_", 35),
    "Slack": _slack,
    "Slack, webhook": _within("https://hooks.slack.com/services/T0AB12CD3/B0AB12CD3/SECRET", ALNUM, 24),
    "Feishu, webhook": _within("https://open.feishu.cn/open-apis/bot/v2/hook/SECRET", HEX, 32),
    "DingTalk, webhook": _within("https://oapi.dingtalk.com/robot/send?access_token=SECRET", HEX, 64),
    "JWT": _jwt,
    "npm": _token("npm_", ALNUM, 36),
    "PyPI": _token("pypi-AgEIcHlwaS5vcmc", ALNUM + "-_", 120),
    "Stripe": _token("sk_live_", ALNUM, 24),
    "SendGrid": _within("SG.SECRET", ALNUM + "-_", 22),
    "Telegram": _token("123456789:AA", ALNUM + "-_", 33),
    "NVIDIA": _token("nvapi-", ALNUM, 64),
    "Groq": _token("gsk_", ALNUM, 52),
    "Databricks": _token("dapi", HEX, 32),
    "Vault": _token("hvs.", ALNUM, 92),
    "Docker Hub": _token("dckr_pat_", ALNUM, 27),
    "address with a password": _within("https://robot:SECRET@mirror.example.com/simple", ALNUM + "!%*", 14),
    "address with an empty user": _within("redis://:SECRET@cache:6379/0", ALNUM, 20),
    "bucket with keys": _within("s3://KEYID:SECRET@bucket/corpus", ALNUM + "/+", 40),
    "checkout with a token": _within("git+https://oauth2:SECRET@git.example.com/x.git", ALNUM, 20),
    "wandb's line": _within("wandb login SECRET", HEX, 40),
    "private key": _private_key,
}
SHAPES["SendGrid"] = lambda chance: _whole(f"SG.{drawn(chance, ALNUM, 22)}.{drawn(chance, ALNUM, 43)}")

# Secrets that only their names give away.
NAMES = (
    *("WANDB_API_KEY", "WANDB_APIKEY", "GITHUB_PAT", "MYSQL_PWD", "HF_TOKEN", "CLIENT_SECRET", "PGPASSWORD"),
    *("AWS_SECRET_ACCESS_KEY", "OBS_SECRET_ACCESS_KEY", "OSS_ACCESS_KEY_SECRET", "SWANLAB_API_KEY", "DB_PASSWORD"),
    *("DOCKER_PASS", "OBS_SK", "MODELSCOPE_API_TOKEN", "HUGGINGFACEHUB_API_TOKEN", "REGISTRY_CREDENTIALS", "MY_JWT"),
)


def _whole(text: str) -> Planted:
    return Planted(text=text, secret=text)


def chosen(chance: random.Random) -> Planted:
    """Return a password that a person might choose: nothing but its name gives it away."""
    return _whole(
        f"{drawn(chance, string.ascii_lowercase, 6)}{drawn(chance, string.digits, 3)}-{drawn(chance, LETTERS, 2)}"
    )


def found_in(folder: Path, secret: str, *, but: tuple[str, ...] = ()) -> list[str]:
    """Return the files below a folder that hold a secret, besides those that the test wrote itself."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name not in but)
    return [str(path) for path in files if secret.encode() in path.read_bytes()]


def quoted(text: str) -> str:
    """Return a text quoted for Hydra's grammar."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def scripts(planted: Planted) -> Iterator[tuple[str, str]]:
    """Yield training scripts that hold a secret which its shape gives away: where it stands, and the text."""
    run = (
        "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 4 --hidden-size 64 --num-attention-heads 4 "
        "--seq-length 64 --max-position-embeddings 64 --micro-batch-size 1 --train-iters 9 --lr 1e-4 --use-flash-attn "
        "--mock-data --tokenizer-type NullTokenizer --vocab-size 99 --no-shared-storage"
    )
    text = planted.text
    if "\n" in text:
        yield "here-document", f"cat > key.pem <<'EOF'\n{text}\nEOF\n{run}\n"
        yield "comment", f"# {text.replace(chr(10), chr(10) + '# ')}\n{run}\n"
        return
    yield "export", f"export EXTRA='{text}'\n{run}\n"
    yield "inline variable", f"EXTRA='{text}' OMP_NUM_THREADS=1 {run}\n"
    yield "variable that is used", f"X='{text}'\n{run} --wandb-project $X\n"
    yield "argument", f"{run} --wandb-exp-name '{text}'\n"
    yield "unknown argument", f"{run} --no-such-argument '{text}'\n"
    yield "argument of the wrong type", f"{run} --seed '{text}'\n"
    yield "left-over word", f"{run} '{text}'\n"
    yield "here-document", f"cat > x.cfg <<EOF\nvalue {text}\nEOF\n{run}\n"
    yield "comment", f"# {text}\n{run} # {text}\n"
    yield "command before", f"pip install -q '{text}'\n{run}\n"
    yield "command after", f"{run}\ncurl -d '{text}' http://x\n"
    yield (
        "sbatch",
        f"#!/bin/bash\n#SBATCH -N 2\n#SBATCH --comment={text}\n#SBATCH --export=ALL,EXTRA={text}\nsrun {run}\n",
    )
    yield "data", f"{run.replace('--mock-data', '--data-path ' + repr(text))}\n"
    yield "continued line", f"{run} \\\n  --save '{text}' \\\n  --save-interval 5\n"


def named_scripts(name: str, planted: Planted) -> Iterator[tuple[str, str]]:
    """Yield training scripts that hold a secret which only its name gives away."""
    run = next(iter(scripts(_whole("x"))))[1].splitlines()[-1]
    text = planted.text
    yield "export", f"export {name}={text}\n{run}\n"
    yield "quoted export", f'export {name}="{text}"\n{run}\n'
    yield "inline variable", f"{name}='{text}' {run}\n"
    yield "sbatch", f"#!/bin/bash\n#SBATCH -N 2\n#SBATCH --export=ALL,{name}={text}\nsrun {run}\n"
    yield "default", f"export {name}=${{{name}:-{text}}}\n{run}\n"
    yield "argument", f"{run} --{name.lower().replace('_', '-')} {text}\n"
    yield "env", f"env {name}={text} {run}\n"
    yield "comment", f"# {name}={text}\n{run}\n"
