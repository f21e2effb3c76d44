"""Addresses of lakes in object stores, and what is said of those that cannot be: no server is asked."""

from __future__ import annotations

import pytest

from fallow.errors import LakeError, UsageError
from fallow.stores import objects, open_store
from tests.conftest import run_python
from tests.publishing.conftest import forget_clients

SECRET = "hush-hush-nobody-may-read-this"  # noqa: S105  # what must not be seen


WRONG = ["s3://", "s3://b", "s3://two words/x", "s3://bucket/../x", "ftp://host/x"]
WRONG += [f"s3://key:{SECRET}@bucket/x", f"s3://bucket/x?key={SECRET}", f"s3://{SECRET}:x/y"]


@pytest.mark.parametrize("location", WRONG)
def test_an_address_that_is_none_is_wrong_use_and_not_repeated(location: str) -> None:
    with pytest.raises(UsageError) as failed:
        open_store(location)
    assert SECRET not in str(failed.value)


def test_slashes_too_many_make_no_other_place() -> None:
    assert open_store("s3://bucket//a///b/").root == "s3://bucket/a/b"
    assert open_store("s3://bucket").root == "s3://bucket"


OF_AZURE = {"ACCOUNT_NAME": "me", "ENDPOINT": "https://127.0.0.1:1"}
OTHER_CLOUDS: list[tuple[str, dict[str, str], str]] = [
    ("gs", {"GOOGLE_SERVICE_ACCOUNT_KEY": f'{{"private_key": "{SECRET}"'}, "does not accept the credentials"),
    ("az", {}, "there are no credentials"),
    ("az", OF_AZURE | {"ACCOUNT_KEY": f"%%{SECRET}"}, "does not accept the"),
    ("az", OF_AZURE | {"SAS_KEY": f"sv=1&sig={SECRET}"}, "the store refuses the connection"),
]


@pytest.mark.parametrize(("scheme", "variables", "said"), OTHER_CLOUDS, ids=["key", "none", "wrong key", "refused"])
def test_the_other_clouds_fail_as_clearly(
    monkeypatch: pytest.MonkeyPatch, scheme: str, variables: dict[str, str], said: str
) -> None:
    forget_clients()
    monkeypatch.setattr(objects, "RETRIES", 1)
    for name, value in variables.items():
        monkeypatch.setenv(name if scheme == "gs" else f"AZURE_STORAGE_{name}", value)
    with pytest.raises(LakeError) as failed:
        open_store(f"{scheme}://bucket/x").put("a", b"x")
    assert (said in str(failed.value), SECRET in str(failed.value)) == (True, False)
    forget_clients()


def test_naming_an_object_store_loads_nothing() -> None:
    code = "import sys; from fallow.lake import Lake; print(Lake.at('s3://bucket/x').root, 'obstore' in sys.modules)"
    done = run_python("-c", code)
    assert done.stdout.split() == ["s3://bucket/x", "False"]
