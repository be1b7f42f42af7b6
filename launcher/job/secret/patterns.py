"""Patterns of well-known tokens, as data: what each looks like, the variable that usually holds it, and the source.

detect-secrets 1.5.0 (Apache-2.0), the maintained library for this, was measured and rejected: 0.19 s of CPU for its
import and one line, `requests` and 370 modules with it, patterns for whole files of source code and none for Hugging
Face, ModelScope, Anthropic or Weights & Biases; a dry run may spend 0.01 s. Its patterns are used here, with its name
as their source; the others come from gitleaks 8 (MIT) and from the documentation of each service.
"""

from launcher.records import dataclass

_DETECT, _LEAKS = "detect-secrets 1.5.0, plugins/", "gitleaks 8, config/gitleaks.toml: "


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretPattern:
    """A pattern for values of one kind.

    Attributes:
        title: name for messages.
        variable: environment variable that usually holds such a value.
        keywords: lower-case texts, one of which is in every such value: they are searched first.
        pattern: regular expression; the group `secret` where only a part of what it matches is secret.
        source: origin of the pattern.
    """

    title: str
    variable: str
    keywords: tuple[str, ...]
    pattern: str
    source: str


# Not in the middle of a longer word.
_START = r"(?<![A-Za-z0-9])"
_MIXED = r"(?=[a-z]*[A-Z0-9])"


def _pattern(title: str, variable: str, keywords: str, pattern: str, source: str) -> SecretPattern:
    return SecretPattern(
        title=title, variable=variable, keywords=tuple(keywords.split()), pattern=pattern, source=source
    )


PATTERNS = (
    _pattern(
        "a private key",
        "PRIVATE_KEY",
        "private",
        r"-----BEGIN[ A-Z0-9_-]{0,100}PRIVATE KEY(?: BLOCK)?-----(?s:.*?)"
        r"(?:-----END[ A-Z0-9_-]{0,100}KEY(?: BLOCK)?-----|\Z)",
        f"{_LEAKS}private-key",
    ),
    _pattern(
        "a Hugging Face token",
        "HF_TOKEN",
        "hf_ api_org_",
        rf"{_START}(?:hf_|api_org_)(?:{_MIXED}[A-Za-z0-9]{{20,}}|[a-z]{{34}}(?![a-z0-9]))",
        f"{_LEAKS}huggingface-access-token, huggingface-organization-api-token",
    ),
    _pattern(
        "a ModelScope token",
        "MODELSCOPE_API_TOKEN",
        "ms-",
        rf"{_START}ms-[0-9a-fA-F]{{8}}(?:-[0-9a-fA-F]{{4}}){{3}}-[0-9a-fA-F]{{12}}",
        "modelscope.cn/docs, access token",
    ),
    _pattern(
        "a Weights & Biases key",
        "WANDB_API_KEY",
        "wandb",
        r"(?i)wandb[^\n]{0,60}?(?<![0-9a-z@/])(?P<secret>[0-9a-f]{40}|wandb_v1_[0-9a-z_]{20,})(?![0-9a-z])",
        "docs.wandb.ai, API keys: 40 hexadecimal digits; wandb_v1_ since 2025",
    ),
    _pattern(
        "a GitHub token",
        "GITHUB_TOKEN",
        "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_",
        rf"{_START}(?:gh[pousr]_[A-Za-z0-9]{{30,}}|github_pat_\w{{22,}})",
        f"{_DETECT}github_token.py; {_LEAKS}github-fine-grained-pat",
    ),
    _pattern(
        "a GitLab token",
        "GITLAB_TOKEN",
        "glpat- gldt- glft- glsoat- glrt- glcbt- glptt- glagent- gloas- glimt-",
        rf"{_START}gl(?:pat|dt|ft|soat|rt|cbt|ptt|agent|oas|imt)-[A-Za-z0-9_.\-]{{20,}}",
        f"{_DETECT}gitlab_token.py",
    ),
    _pattern(
        "an Anthropic key",
        "ANTHROPIC_API_KEY",
        "sk-ant-",
        rf"{_START}sk-ant-[A-Za-z0-9_\-]{{20,}}",
        f"{_LEAKS}anthropic-api-key",
    ),
    _pattern(
        "an API key",
        "OPENAI_API_KEY",
        "sk-",
        rf"{_START}sk-(?:(?:proj|svcacct|admin)-[A-Za-z0-9_\-]{{20,}}|(?:or-v1-|lf-)?{_MIXED}[A-Za-z0-9]{{20,}})",
        f"{_DETECT}openai.py; {_LEAKS}openai-api-key; DeepSeek, DashScope, Moonshot: sk- and letters and digits",
    ),
    _pattern(
        "an AWS access key",
        "AWS_ACCESS_KEY_ID",
        "akia asia abia acca a3t absk",
        rf"{_START}(?:(?:A3T[A-Z0-9]|ABIA|ACCA|AKIA|ASIA)[0-9A-Z]{{16}}(?![A-Za-z0-9])|ABSK[A-Za-z0-9+/]{{60,}}=*)",
        f"{_DETECT}aws.py; {_LEAKS}aws-amazon-bedrock-api-key-long-lived",
    ),
    _pattern(
        "an Alibaba Cloud access key",
        "OSS_ACCESS_KEY_ID",
        "ltai",
        rf"{_START}LTAI[A-Za-z0-9]{{12,26}}(?![A-Za-z0-9])",
        f"{_LEAKS}alibaba-access-key-id",
    ),
    _pattern(
        "a Tencent Cloud access key",
        "TENCENTCLOUD_SECRET_ID",
        "akid",
        rf"{_START}AKID[A-Za-z0-9]{{28,36}}(?![A-Za-z0-9])",
        "cloud.tencent.com/document/product/598/37140",
    ),
    _pattern(
        "a Volcengine access key",
        "VOLC_ACCESS_KEY_ID",
        "aklt",
        rf"{_START}AKLT[A-Za-z0-9_\-]{{30,}}",
        "volcengine.com/docs/6291/65568",
    ),
    _pattern(
        "a key of Azure storage",
        "AZURE_STORAGE_KEY",
        "accountkey= sharedaccesskey= sharedaccesssignature=",
        r"(?i)(?:AccountKey|SharedAccessKey|SharedAccessSignature)=(?P<secret>[^;\s'\"]{16,})",
        f"{_DETECT}azure_storage_key.py",
    ),
    _pattern(
        "an Azure client secret",
        "AZURE_CLIENT_SECRET",
        "q~",
        r"(?<![A-Za-z0-9_~.])[A-Za-z0-9_~.]{3}\dQ~[A-Za-z0-9_~.\-]{31,34}",
        f"{_LEAKS}azure-ad-client-secret",
    ),
    _pattern(
        "the signature of an address",
        "URL_SECRET",
        "sig= signature= credential=",
        r"(?i)[?&](?:sig|signature|x-amz-signature|x-amz-credential|x-oss-signature|x-goog-signature)="
        r"(?P<secret>[^&\s'\"]{8,})",
        "AWS, Azure, OSS, Google: presigned URLs",
    ),
    _pattern(
        "a Google key",
        "GOOGLE_API_KEY",
        "aiza ya29. gocspx-",
        rf"{_START}(?:AIza[\w\-]{{35}}|ya29\.[\w\-]{{20,}}|GOCSPX-[\w\-]{{20,}})",
        f"{_LEAKS}gcp-api-key",
    ),
    _pattern(
        "a Slack token",
        "SLACK_TOKEN",
        "xox xapp-",
        rf"{_START}(?:xox[abeposr]|xapp)-(?=[\w\-]*\d)[A-Za-z0-9\-]{{10,}}",
        f"{_DETECT}slack.py; {_LEAKS}slack-app-token",
    ),
    _pattern(
        "a webhook",
        "WEBHOOK_SECRET",
        "hooks.slack.com discord feishu larksuite weixin dingtalk logic.azure webhook.office",
        r"(?i)https?://(?:hooks\.slack\.com/(?:services|workflows|triggers)/\S+?(?=['\"\s,;)}\]]|\Z)"
        r"|discord(?:app)?\.com/api/webhooks/[\w/\-]+|open\.(?:feishu\.cn|larksuite\.com)/open-apis/bot/v2/hook/[\w\-]+"
        r"|qyapi\.weixin\.qq\.com/cgi-bin/webhook/send\?key=[\w\-]+|oapi\.dingtalk\.com/robot/send\?access_token=\w+"
        r"|[\w.\-]+\.webhook\.office\.com/\S+?(?=['\"\s,;)}\]]|\Z))",
        f"{_DETECT}slack.py, discord.py; Feishu, WeCom and DingTalk: custom robots",
    ),
    _pattern(
        "a JSON web token",
        "JWT",
        "eyj",
        rf"{_START}eyJ[A-Za-z0-9_=\-]{{8,}}\.[A-Za-z0-9_=\-]{{8,}}(?:\.[A-Za-z0-9_.+/=\-]*)?",
        f"{_DETECT}jwt.py",
    ),
    _pattern("an npm token", "NPM_TOKEN", "npm_", rf"{_START}npm_[A-Za-z0-9]{{30,}}", f"{_DETECT}npm.py"),
    _pattern("a PyPI token", "PYPI_TOKEN", "pypi-", rf"{_START}pypi-[A-Za-z0-9_\-]{{40,}}", f"{_DETECT}pypi_token.py"),
    _pattern(
        "a Stripe key",
        "STRIPE_API_KEY",
        "sk_ rk_",
        rf"{_START}[sr]k_(?:live|test|prod)_[A-Za-z0-9]{{10,}}",
        f"{_DETECT}stripe.py",
    ),
    _pattern(
        "a SendGrid key",
        "SENDGRID_API_KEY",
        "sg.",
        rf"{_START}SG\.[\w\-]{{16,}}\.[\w\-]{{16,}}",
        f"{_DETECT}sendgrid.py",
    ),
    _pattern(
        "a Telegram bot's token",
        "TELEGRAM_BOT_TOKEN",
        ":aa",
        rf"{_START}\d{{8,10}}:AA[\w\-]{{33}}(?![\w\-])",
        f"{_DETECT}telegram_token.py",
    ),
    _pattern(
        "a key of a model service",
        "API_KEY",
        "nvapi- gsk_ xai- pplx- r8_ dapi hvs. dop_v1_ dckr_pat_ age-secret-key-1 glsa_ glc_ "
        "pul- lin_api_ ntn_ sntry tvly-",
        rf"{_START}(?:nvapi-[\w\-]{{30,}}|gsk_[A-Za-z0-9]{{30,}}|xai-[A-Za-z0-9]{{40,}}|pplx-[A-Za-z0-9]{{32,}}"
        r"|r8_[A-Za-z0-9]{30,}|dapi[a-f0-9]{32}|hvs\.[\w\-]{24,}|dop_v1_[a-f0-9]{64}|dckr_pat_[\w\-]{20,}"
        r"|AGE-SECRET-KEY-1[0-9A-Z]{58}|glsa_\w{32,}|glc_[A-Za-z0-9+/]{32,}=*|pul-[a-f0-9]{40}|lin_api_[A-Za-z0-9]{40}"
        r"|ntn_[A-Za-z0-9]{40,}|sntry[su]_\S{40,}|tvly-(?:dev-|prod-)?[A-Za-z0-9]{30,})",
        f"{_LEAKS}databricks-api-token, vault-service-token, perplexity-api-key and others; NVIDIA NGC, Groq, xAI",
    ),
)

# Commands and headers in which a word is a secret by its position; group `secret`.
COMMANDS = (
    _pattern(
        "an authorization header",
        "AUTHORIZATION",
        "bearer basic authorization",
        r"(?i)(?:\bbearer\s+|\bauthorization['\"]?\s*[:=]\s*['\"]?(?:basic\s+|token\s+|bearer\s+)?)"
        r"(?P<secret>[^\s'\"$<{][^\s'\"]{5,})",
        "RFC 7235, RFC 6750",
    ),
    _pattern(
        "a password",
        "CURL_PASSWORD",
        "curl",
        r"\bcurl\b[^\n|;]*?\s(?:-u\s*|--(?:proxy-)?user[ =])['\"]?[^\s:'\"]+:(?P<secret>[^\s'\"$]+)",
        "curl(1) --user",
    ),
    _pattern("a password", "SSHPASS", "sshpass", r"\bsshpass\s+-p\s*['\"]?(?P<secret>[^\s'\"$]+)", "sshpass(1) -p"),
    _pattern(
        "a password",
        "MYSQL_PWD",
        "mysql",
        r"\bmysql(?:dump|admin)?\b[^\n|;]*?\s-p['\"]?(?P<secret>[^\s'\"$]+)",
        "mysql(1) -p",
    ),
    _pattern(
        "a password",
        "LOGIN_PASSWORD",
        "login",
        r"\b(?:docker|podman|nerdctl|helm|oras|az|crane)\b[^\n|;]*?\blogin\b[^\n|;]*?\s-p\s*['\"]?(?P<secret>[^\s'\"$]+)",
        "docker-login(1) -p",
    ),
    _pattern(
        "a key",
        "WANDB_API_KEY",
        "wandb swanlab",
        r"\b(?:wandb|swanlab)(?:\.login\(|\s+login)\s*(?:--?(?!key\b|api-key\b|k\b)[\w\-]+(?:=\S+)?\s+)*"
        r"(?:(?:-k|--api-key|--key|key\s*=|api_key\s*=)[\s=]*)?['\"]?(?P<secret>[A-Za-z0-9_]{12,})",
        "wandb login --help, swanlab login --help",
    ),
    _pattern(
        "a password",
        "NETRC_PASSWORD",
        "password",
        r"\b(?:login|user)\s+\S+\s+password\s+(?P<secret>[^\s'\"$\\]+)",
        "netrc(5)",
    ),
    _pattern(
        "a password",
        "REDISCLI_AUTH",
        "redis-cli",
        r"\bredis-cli\b[^\n|;]*?\s-a\s+['\"]?(?P<secret>[^\s'\"$]+)",
        "redis-cli",
    ),
    _pattern(
        "a passphrase", "OPENSSL_PASS", "pass:", r"\bpass:(?P<secret>[^\s'\"$]+)", "openssl-passphrase-options(1)"
    ),
    _pattern(
        "a secret",
        "LAUNCH_SECRET",
        "echo printf",
        r"\b(?:echo|printf)\s+(?:-\w+\s+|['\"]?%s(?:\\n)?['\"]?\s+)*['\"]?(?P<secret>[^\s'\"$|]{6,})['\"]?\s*\|[^\n]*"
        r"(?:--password-stdin|--with-token|login)",
        "docker login --password-stdin, gh auth login --with-token",
    ),
)
