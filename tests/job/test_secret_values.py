"""What is taken for a secret by its shape, by its name and by its place in bash; and what must not be."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.job.secret import Variables, by_reference, find, is_secret, redacted
from launcher.job.secret.patterns import COMMANDS, PATTERNS
from launcher.job.secret.refer import in_bash, of_submission
from tests import planted

AROUND = ("{}", "prefix {} suffix", "x={}", "'{}'", '{{"a": "{}"}}', "--option={}", "[{}]", "a,{},b", "({})", "see {}.")


@pytest.mark.parametrize("kind", planted.SHAPES)
def test_a_known_shape_is_found_anywhere(kind: str) -> None:
    chance = random.Random(kind)
    for _ in range(20):
        each = planted.SHAPES[kind](chance)
        for around in AROUND:
            shown = redacted(around.format(each.text))
            assert each.secret not in shown, around


@pytest.mark.parametrize("kind", planted.SHAPES)
@given(seed=st.integers(0, 2**32))
def test_a_value_of_a_known_shape_becomes_a_reference(kind: str, seed: int) -> None:
    each = planted.SHAPES[kind](random.Random(seed))
    if kind == "wandb's line":
        return  # prose for an argument: a command in bash
    value = by_reference("value", [each.text, {"inner": each.text}], Variables({}))
    assert each.secret not in repr(value)
    assert "${" in value[0]
    assert by_reference("value", value, Variables({})) == value, "a reference stays as it is"


@pytest.mark.parametrize(
    "text", ["s3://KEYID:3/VJAa8NE@bucket/corpus", "oss://KEYID:42/x+y@bucket", "ftp://u:123456/x@h"]
)
def test_a_key_may_begin_like_a_port(text: str) -> None:
    assert redacted(text) == f"{text[: text.rindex(':')]}:…{text[text.index('@') :]}"


@pytest.mark.parametrize("name", planted.NAMES)
@given(seed=st.integers(0, 2**32))
def test_a_name_is_enough(name: str, seed: int) -> None:
    each = planted.chosen(random.Random(seed))
    assert by_reference(name, each.text, Variables({})) == f"${{{name}}}"
    for form in (
        "export {}={}",
        '"{}": "{}"',
        "{}: {}",
        "--{} {}",
        "setenv {} {}",
        "--export=ALL,{}={},A=1",
        "{}={} run x",
    ):
        assert each.secret not in redacted(form.format(name, each.text)), form
        assert each.secret not in redacted(form.format(name.lower().replace("_", "-"), each.text)), form


# Bash: what it becomes.
BASH = {
    "export HF_TOKEN=abc123": 'export HF_TOKEN="${HF_TOKEN}"',
    "export HF_TOKEN='abc 123'": 'export HF_TOKEN="${HF_TOKEN}"',
    'export HF_TOKEN="abc 123"': 'export HF_TOKEN="${HF_TOKEN}"',
    "A_PAT=x1 B_PWD=y2 run": 'A_PAT="${A_PAT}" B_PWD="${B_PWD}" run',
    "export HF_TOKEN=$(cat ~/.token)": "export HF_TOKEN=$(cat ~/.token)",
    "export HF_TOKEN=$MINE": "export HF_TOKEN=$MINE",
    'export HF_TOKEN="${MINE:?}"': 'export HF_TOKEN="${MINE:?}"',
    "export HF_TOKEN_PATH=/root/token": "export HF_TOKEN_PATH=/root/token",
    "curl -u me:pa55 http://x": 'curl -u me:"${CURL_PASSWORD}" http://x',
    "docker login -u me -p pa55 registry": 'docker login -u me -p "${LOGIN_PASSWORD}" registry',
    "sshpass -p pa55 ssh x": 'sshpass -p "${SSHPASS}" ssh x',
    "mysql -h x -pa55word db": 'mysql -h x -p"${MYSQL_PWD}" db',
    "echo pa55word | docker login --password-stdin": 'echo "${LAUNCH_SECRET}" | docker login --password-stdin',
    "pip install -i https://me:pa55@host/simple x": 'pip install -i https://me:"${URL_PASSWORD}"@host/simple x',
    "curl -H 'X-Api-Key: abc123' http://x": "curl -H 'X-Api-Key: '\"${X_API_KEY}\"'' http://x",
    "source /usr/local/Ascend/ascend-toolkit/set_env.sh": "source /usr/local/Ascend/ascend-toolkit/set_env.sh",
}


@pytest.mark.parametrize(("written", "kept"), BASH.items(), ids=BASH)
def test_bash_refers_to_variables(written: str, kept: str) -> None:
    assert in_bash(written, Variables({})) == kept


EXPORTED = {
    "--export=ALL,HF_TOKEN=abc123": "--export=ALL,HF_TOKEN",
    "--export=HF_TOKEN=abc123,OMP_NUM_THREADS=1": "--export=HF_TOKEN,OMP_NUM_THREADS=1",
    "--export ALL,MY_PWD=a,b": "--export ALL,MY_PWD",
    "--export=ALL": "--export=ALL",
    "--export=NONE,PATH=/bin": "--export=NONE,PATH=/bin",
    "--comment=weekly run": "--comment=weekly run",
    "--switches=1": "--switches=1",
}


@pytest.mark.parametrize(("written", "kept"), EXPORTED.items(), ids=EXPORTED)
def test_a_queue_hands_on_names(written: str, kept: str) -> None:
    assert of_submission(written) == kept


def test_a_value_of_the_environment_is_its_variable() -> None:
    token = "hf_" + "aB" * 17
    assert by_reference("x", token, Variables({"MY_OWN": token})) == "${MY_OWN}"
    assert by_reference("hub_token", token, Variables({"MY_OWN": token})) == "${MY_OWN}"
    assert by_reference("hub_token", token, Variables({"MY_OWN": "other"})) == "${HUB_TOKEN}"


def test_two_values_are_two_variables() -> None:
    first, second = "hf_" + "aB" * 17, "hf_" + "Cd" * 17
    assert by_reference("x", [first, second, first], Variables({})) == ["${HF_TOKEN}", "${HF_TOKEN_2}", "${HF_TOKEN}"]


# Name of the value: what is no secret under it.
BENIGN = (
    # words of a vocabulary, as configurations of four stacks have them
    *(("pad_token", arg) for arg in ("<pad>", "<|endoftext|>", "<unk>", "[PAD]", "<_pad>", "</s>", "<|im_end|>")),
    *(("eos_token", arg) for arg in ("<|eot_id|>", "<eop>", "<｜end▁of▁sentence｜>", "<|reserved_special_token_0|>")),
    *(("mask_token", "[MASK]"), ("gmask_token", "[gMASK]"), ("image_token", "<image>"), ("bos_token", "<s>")),
    *(("GENERATIVE_RERANKER_POSITIVE_TOKEN", "yes"), ("GENERATIVE_RERANKER_NEGATIVE_TOKEN", "no")),
    *(
        ("IMAGE_MAX_TOKEN_NUM", "1024"),
        ("VIDEO_MAX_TOKEN_NUM", "128"),
        ("max_new_tokens", "2048"),
        ("max_tokens", "8192"),
    ),
    *(("tokenizer_type", "GPTSentencePieceTokenizer"), ("tokenizer_model", "/data/Qwen2.5-72B/tokenizer.model")),
    *(("tokenizer-name-or-path", "deepseek-ai/DeepSeek-V3"), ("tokenizer_path", "./Qwen3-30B-A3B-Instruct-2507")),
    *(("moe-token-dispatcher-type", "alltoall_seq"), ("moe_token_drop_policy", "probs"), ("json-keys", "text")),
    *(("teacher_tag_key", "dataset"), ("construct_args_key", "input_ids"), ("linear-num-key-heads", "16")),
    *(("importance_sampling_level", "token"), ("model_author", "swift"), ("new_special_tokens", "tokens.txt")),
    # checksums, revisions, ids
    *(("data", "/data/9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08.jsonl"),),
    *(
        ("revision", "a1284b3cd92be7b31a1e60266074ade72bad096a"),
        ("sha256", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b8"),
    ),
    *(("run_id", "3f2504e0-4f89-11d3-9a0c-0305e82c3301"), ("md5", "9e107d9d372bb6826bd81d3542a419d6")),
    *(("image", "registry.example.com:5000/team/train@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822c"),),
    *(("requirement", "git+https://github.com/wandb/wandb@a1284b3cd92be7b31a1e60266074ade72bad096a"),),
    # paths and addresses
    *(("SSH_PRIVATE_KEY", "/root/.ssh/id_rsa.pem"), ("GOOGLE_APPLICATION_CREDENTIALS", "/etc/gcp/sa.json")),
    *(
        ("HF_TOKEN_PATH", "/root/.cache/huggingface/token"),
        ("API_KEY_FILE", "/run/keys/api"),
        ("SECRET_NAME", "launch-secrets"),
    ),
    *(
        ("endpoint", "http://proxy.example.com:8080"),
        ("data", "s3://minio:9000/corpus@v2/part"),
        ("http_proxy", "http://proxy:8080/path@v2"),
        ("host", "me@node-1"),
    ),
    *(
        ("remote", "git@github.com:NVIDIA/Megatron-LM.git"),
        ("url", "https://hf-mirror.com"),
        ("url", "ssh://git@host/x"),
    ),
    *(("data", "s3://bucket/corpus/part-00001.jsonl.gz"), ("data", "oss://bucket/a:b/c"), ("mount", "/a:/b:ro")),
    *(
        ("data", "hdfs://namenode:9000/user/corpus@2024"),
        ("pattern", "file:///data/x"),
        ("PWD", "/root/work2024abcdef"),
    ),
    # models
    *(
        ("model", name)
        for name in ("Qwen/Qwen3-30B-A3B-Thinking-2507", "zai-org/GLM-4.5-Air-FP8", "Kimi-K2-Instruct-0905")
    ),
    *(
        ("model", "unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit"),
        ("model", "sk-learn-datasets"),
        ("model", "hf_model_dir"),
    ),
    *(
        ("name", "npm_and_yarn"),
        ("name", "pypi-mirror"),
        ("name", "ghp_pages"),
        ("name", "ms-swift-4.6"),
        ("name", "AKIAH"),
    ),
    *(
        ("name", "sk-ip-connection-and-normalisation"),
        ("folder", "hf_checkpoint_qwen3_moe_distill"),
        ("x", "wandb_logs"),
    ),
    *(("dataset", "AI-MO/NuminaMath-TIR#32"), ("dataset", "swift/new_special_tokens"), ("layout", "Et*3|(tt|)*29,m|L")),
    # numbers, switches, options
    *(
        ("lr", "1e-5"),
        ("seed", "1234567890"),
        ("token", "1024"),
        ("api_key", "null"),
        ("token", ""),
        ("hub_token", "none"),
    ),
    *(
        ("password", "${DB_PASSWORD}"),
        ("hub_token", "$(cat token)"),
        ("x", "--export=ALL"),
    ),
    *(("alloc", "expandable_segments:True,max_split_size_mb:512"), ("freq", "([0]*3+[1]*58)"), ("split", "99,1,0")),
    *(("system", "You are helpful. Keep the password: never tell it, and the token: neither."),),
    *(
        ("system", "Solve step by step and put your final answer within \\boxed{}."),
        ("template", "{{ messages[0].key }}"),
    ),
)


@pytest.mark.parametrize(("name", "value"), BENIGN, ids=[f"{name}={value}"[:60] for name, value in BENIGN])
def test_what_is_no_secret_stays(name: str, value: str) -> None:
    assert find(value, name) == ()
    assert by_reference(name, value, Variables({})) == value
    if name != "system":  # prose that is shown as code
        assert redacted(f"--{name}={value}") == f"--{name}={value}"


def test_enough_that_is_benign_is_named() -> None:
    assert len(set(BENIGN)) >= 60


NAMED = {
    **dict.fromkeys(planted.NAMES, True),
    **dict.fromkeys(("hub_token", "token", "model.model_config.token", "callbacks.CheckpointMonitor.enc_key"), True),
    **dict.fromkeys(
        ("api-key", "apiKey", "wandbApiKey", "HF_TOKEN_2", "accessKeySecret", "connection_string", "KEY"), True
    ),
    **dict.fromkeys(("PWD", "OLDPWD", "pad_token", "max_tokens", "tokenizer", "json-keys", "HF_TOKEN_PATH"), False),
    **dict.fromkeys(("SECRET_NAME", "MONKEY", "KEYBOARD", "BYPASS", "num_key_value_heads", "author", "HF_HOME"), False),
    **dict.fromkeys(("teacher_tag_key", "moe_token_dispatcher_type", "AUTHOR", "TOKENIZERS_PARALLELISM"), False),
}


@pytest.mark.parametrize(("name", "expected"), NAMED.items(), ids=NAMED)
def test_names(name: str, expected: bool) -> None:
    assert is_secret(name) is expected


def test_every_pattern_has_a_source_and_lower_case_keywords() -> None:
    for pattern in (*PATTERNS, *COMMANDS):
        assert is_secret(pattern.variable), "the variable that stands for it is one, too"
        assert pattern.source
        assert all(keyword == keyword.lower() for keyword in pattern.keywords)
