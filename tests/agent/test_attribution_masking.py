"""Secrets in command lines: none of the forms in which they are given may survive."""

from __future__ import annotations

import json
import shlex
import string
from urllib.parse import quote

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from agent.attribution.masking import LONGEST, MASK, mask_arguments
from tests.conftest import run_python

NAMES = [
    "token", "TOKEN", "api-key", "api_key", "apiKey", "OPENAI_API_KEY", "HF_TOKEN", "hf-token", "password", "passwd",
    "PGPASSWORD", "MYSQL_PWD", "db-pass", "SSHPASS", "passphrase", "secret", "client_secret", "clientSecret",
    "AWS_SECRET_ACCESS_KEY", "aws_session_token", "AWS_ACCESS_KEY_ID", "credential", "credentials", "auth",
    "auth-token", "authorization", "Authorization", "X-Api-Key", "bearer", "private-key", "signing_key",
    "wandb.api_key", "trainer.logger.token", "WANDB_API_KEY", "key", "jwt", "cookie", "access_token", "refresh-token",
    "AccountKey", "SharedAccessKey", "sig", "X-Amz-Signature", "sas", "webhook_secret",
]  # fmt: skip

# what a secret may consist of in each form; blanks and quotes where the form can carry them
_PLAIN = st.text(string.ascii_letters + string.digits, min_size=8, max_size=40)
_DENSE = st.text(string.ascii_letters + string.digits + "+/=_.!@#%^*~,;:?&-", min_size=8, max_size=40)
_ANY = st.text(string.ascii_letters + string.digits + string.punctuation + " ", min_size=8, max_size=40)
_NAME = st.sampled_from(NAMES)


def mask(*arguments: str) -> str:
    return mask_arguments([argument.encode() for argument in arguments])


def assert_gone(secret: str, *arguments: str) -> None:
    """Neither the secret nor a half of it is left: a mask may not begin too late nor end too early."""
    assume(not secret.startswith("--") and len(set(secret)) > 4)
    line = ["python", "train.py", *arguments, "--lr", "0.1"]
    masked = mask(*line)
    harmless = " ".join(line).replace(secret, " ")
    for part in (secret, secret[: len(secret) // 2], secret[len(secret) // 2 :]):
        assume(part.strip() not in harmless)
        assert part.strip() not in masked


@given(_NAME, _ANY)
def test_values_joined_to_an_option(name: str, secret: str) -> None:
    assert_gone(secret, f"--{name}={secret}")
    assert_gone(secret, f"-{name}={secret}")


@given(_NAME, _ANY)
def test_values_in_an_argument_of_their_own(name: str, secret: str) -> None:
    assert_gone(secret, f"--{name}", secret)
    assert_gone(secret, f"-{name}", secret)


@given(_NAME, _ANY)
def test_assignments(name: str, secret: str) -> None:
    assert_gone(secret, f"{name}={secret}")
    assert_gone(secret, "-e", f"{name}={secret}")
    assert_gone(secret, f"+{name}={secret}")
    assert_gone(secret, f"{name}:{secret}")
    assert_gone(secret, f"{name}: {secret}")


@given(_NAME, _DENSE)
def test_assignments_behind_another_option(name: str, secret: str) -> None:
    assert_gone(secret, f"--set=server.{name}={secret}")
    assert_gone(secret, f"--env={name}={secret}")
    assert_gone(secret, f"Server=db;{name}={secret};Timeout=3")


@given(_NAME, _ANY)
def test_scripts_for_a_shell(name: str, secret: str) -> None:
    variable = name.replace("-", "_").replace(".", "_")
    quoted = shlex.quote(secret)
    assert_gone(secret, "-c", f"export {variable}={quoted} && run --{name} {quoted} --then more")
    assert_gone(secret, "-c", f"cd /tmp; {variable}={quoted} run; echo done")
    assert_gone(secret, "-c", f"run --{name}={quoted}; echo done")
    assert_gone(secret, "-c", f"curl -H {shlex.quote(f'{name}: {secret}')} https://example.org/")


@given(
    _NAME,
    st.lists(_PLAIN, min_size=2, max_size=3),
    st.sampled_from(["'", '"', " ", "\\", "\\'", '\\"', "' ", "; ", "$", "`"]),
)
def test_secrets_with_quotes_and_blanks_in_scripts(name: str, parts: list[str], between: str) -> None:
    secret = between.join(parts)
    assume(all(len(set(part)) > 4 for part in parts))
    variable = name.replace("-", "_").replace(".", "_")
    for script in (
        f"export {variable}={shlex.quote(secret)}; run --more 1",
        f"run --{name} {shlex.quote(secret)} --more 1",
        f"run --{name}={shlex.quote(secret)} --more 1",
        f"x = dict({variable}={secret!r}); run()",
        f"curl -H {shlex.quote(f'{name}: Bearer {secret}')} https://example.org/",
    ):
        assert not [part for part in parts if part in mask("bash", "-c", script)]


@given(_NAME, _ANY)
def test_code_and_json(name: str, secret: str) -> None:
    assert_gone(secret, json.dumps({"user": "me", name: secret, "rest": 1}))
    assert_gone(secret, f"--config={json.dumps({name: secret})}")
    assert_gone(secret, "-c", f"import os; os.environ[{name!r}] = {secret!r}; main()")
    assert_gone(secret, "-c", f"main({name.replace('-', '_').replace('.', '_')}={secret!r})")


@given(_NAME, _DENSE)
def test_a_command_line_that_its_program_has_rewritten_into_one_text(name: str, secret: str) -> None:
    assume(not {"'", '"'} & set(secret))
    masked = mask(f"server: --model m --{name} {secret} --port 80", "")
    assert secret not in masked
    assert "--port 80" in masked


@given(_PLAIN, _DENSE, st.sampled_from(["https", "postgresql", "redis", "mongodb+srv", "s3", "git+https", "amqp"]))
def test_credentials_in_addresses(user: str, secret: str, scheme: str) -> None:
    assert_gone(secret, f"{scheme}://{user}:{secret}@example.org:1234/path")
    assert_gone(secret, f"{scheme}://:{secret}@example.org/path")
    assert_gone(secret, f"--url={scheme}://{user}:{quote(secret, safe='')}@example.org/path")


@given(_PLAIN, _NAME)
def test_parameters_of_addresses(secret: str, name: str) -> None:
    assert_gone(secret, f"https://example.org/v1?page=2&{name}={secret}&size=3")
    assert_gone(secret, f"https://example.org/v1#{name}={secret}")
    assert_gone(secret, f"next=https%3A%2F%2Fexample.org%3F{name}%3D{secret}")


@given(_DENSE)
def test_short_options_of_known_programs(secret: str) -> None:
    assume(secret[0] not in "-=")
    for program, option in [("mysql", "-p"), ("/usr/bin/mysqldump", "-p"), ("sshpass", "-p"), ("redis-cli", "-a"),
                            ("ldapsearch", "-w"), ("sqlcmd", "-P"), ("curl", "-u")]:  # fmt: skip
        assume(secret[:4] not in program)
        assert_gone(secret, program, f"{option}{secret}", "-h", "db")
        assert_gone(secret, program, "-password", secret, "-h", "db")
        assert_gone(secret, program, "-h", "db", f"--password={secret}")
        assert_gone(secret, program, option, secret, "-h", "db")
        assert_gone(secret, "-c", f"{program} -h db {option} {shlex.quote(secret)} | tail")
    assert_gone(f"{secret[:5]} {secret[5:]}", "mysql", f"-p{secret[:5]} {secret[5:]}")
    assert_gone(secret, "docker", "login", "-u", "me", "-p", secret, "registry.example.org")


_TAIL = st.text(string.ascii_letters + string.digits, min_size=36, max_size=60)


@given(_TAIL, st.sampled_from([
    "hf_", "sk-", "sk-ant-api03-", "sk-proj-", "ghp_", "gho_", "github_pat_", "glpat-", "xoxb-", "AIzaSy", "nvapi-",
    "gsk_", "npm_", "pypi-", "sk_live_", "hvs.", "SG.", "dckr_pat_", "wandb_v1_",
]))  # fmt: skip
def test_tokens_that_show_by_their_shape(tail: str, prefix: str) -> None:
    assert_gone(tail, f"{prefix}{tail}")
    assert_gone(tail, "-c", f"login({prefix}{tail})")
    assert_gone(tail, f"--name={prefix}{tail}")


@pytest.mark.parametrize(
    "secret",
    [
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"[:40],
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
        "-----BEGIN OPENSSH PRIVATE KEY----- b3BlbnNzaC1rZXk= -----END OPENSSH PRIVATE KEY-----",
    ],
)
def test_long_keys_by_their_shape(secret: str) -> None:
    assert secret not in mask("run", secret, "x")
    assert secret[30:] not in mask("run", secret, "x")


@pytest.mark.parametrize(
    "line",
    [
        "python train.py --lr 0.1 --max-tokens 512 --max_new_tokens=256 --tokenizer meta-llama/Llama-3-8B --model m",
        "python -m vllm.entrypoints.openai.api_server --model m --max-num-batched-tokens 8192 --port 8000",
        "torchrun --nproc-per-node 8 --rdzv-endpoint node1:29500 train.py --author me --data /data/x",
        "docker run -p 8080:80 --gpus all -v /a:/b nvcr.io/nvidia/pytorch:24.01-py3@sha256:0123 python x.py",
        "ssh -p 22 me@host python x.py",
        "git clone https://github.com/a/b@main git@github.com:a/b.git",
        "curl http://127.0.0.1:8000/v1/models",
        "python x.py --commit 0123456789abcdef0123456789abcdef01234567",
        "/opt/conda/envs/Train2/lib/python3.11/site-packages/torch/bin/torch_shm_manager",
    ],
)
def test_what_is_no_secret_stays(line: str) -> None:
    assert mask(*line.split()) == line


def test_a_flag_without_a_value_takes_nothing_along() -> None:
    assert mask("x", "--use-auth", "--model", "m") == "x --use-auth --model m"
    assert mask("x", "--password", "--token", "abc") == f"x --password --token {MASK}"


def test_long_command_lines_are_cut() -> None:
    text = mask("x", *(f"--option-{number}" for number in range(1000)))
    assert len(text) == LONGEST
    assert text.endswith("…")


@settings(max_examples=40)
@given(_PLAIN, st.integers(0, 2500))
def test_a_secret_at_the_cut_is_none_the_less_masked(secret: str, before: int) -> None:
    assert secret not in mask("y" * before, f"--token={secret}", "z" * 3000)
    assert secret not in mask("y " * before, f"https://me:{secret}@host/")


@settings(max_examples=300)
@given(st.lists(st.binary(max_size=60), max_size=6))
def test_any_bytes_become_valid_printable_text(arguments: list[bytes]) -> None:
    text = mask_arguments(arguments)
    text.encode()
    assert len(text) <= LONGEST
    assert not {chr(code) for code in (*range(0x20), 0x7F, 0x9B)} & set(text)


HOSTILE = ("'", '"', "\\", "token=", "a://", "a:b", " -p", "a1A ", "https://a:", "eyJaaaa.", "--token ", "(", "%3D")


def test_hostile_arguments_take_no_time_to_speak_of() -> None:
    """In a process that may have so much CPU and no more: an expression that tries every way to read 8 KiB takes years.

    Of a word that long no shape is looked for, so that there is a shorter one too.
    """
    program = f"""
import resource
from agent.attribution.masking import mask_arguments
resource.setrlimit(resource.RLIMIT_CPU, (30, 30))
for part in {HOSTILE!r}:
    for size in 3900, 8192:
        print(len(mask_arguments([b"mysql", (part * (size // len(part))).encode()])))
"""
    done = run_python("-c", program)
    assert (done.returncode, done.stderr) == (0, "")
    lengths = [int(line) for line in done.stdout.split()]
    assert len(lengths) == 2 * len(HOSTILE)
    assert max(lengths) <= LONGEST
